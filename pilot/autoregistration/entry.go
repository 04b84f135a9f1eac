package autoregistration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// Annotations of an entry that was registered.
const (
	annotationGroup        = names.AnnotationRegistrationGroup
	annotationController   = names.AnnotationWorkloadController // the instance that holds, or last held, the proxy's stream
	annotationConnected    = names.AnnotationConnected          // RFC 3339; absent once it is disconnected
	annotationDisconnected = names.AnnotationDisconnected       // RFC 3339; absent while it is connected
	annotationHealth       = names.AnnotationHealthChecks
)

// Bounds of what a proxy may have written for it.
const (
	maxName    = 253     // bytes of an object's name
	maxLabels  = 64      // that the proxy brings
	maxMessage = 1 << 10 // bytes of what it says about its health
)

// Entry is a WorkloadEntry as a Store has it.
type Entry struct {
	types.NamespacedName
	UID         string
	Version     string // of what was read, for a write that must not undo another's
	Labels      map[string]string
	Annotations map[string]string
	Owner       Owner
	Created     time.Time
	Spec        *networkingv1.WorkloadEntry
	Health      *Condition // nil: none was ever reported

	conditions []map[string]any // of other types
}

// Owner is the WorkloadGroup that an entry is deleted with.
type Owner struct{ Name, UID string }

// Condition is the condition Healthy of an entry's status.
type Condition struct {
	Healthy bool
	Message string
	Probed  time.Time // when it was reported
	Changed time.Time // when Healthy last turned
}

// same reports whether writing c over the other would change nothing.
func (c *Condition) same(o *Condition) bool {
	return o != nil && c.Healthy == o.Healthy && c.Message == o.Message
}

// keyOf returns the name of the entry of a proxy. One proxy gets one name, at whatever replica it connects. It is
// <group>-<address>[-<network>], as others expect; a network that cannot stand in the name of an object gets a hash
// behind it, or n_1 and n-1 would share an entry.
func keyOf(p *node.Proxy) types.NamespacedName {
	name := p.RegisterGroup + "-" + strings.ReplaceAll(p.IPs[0], ":", "-")
	if p.Network != "" {
		name += "-" + p.Network
		if content.IsDNS1123Subdomain(p.Network) != nil {
			name += "-" + hash(p.Network)
		}
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	// A part of the name must neither begin nor end with a dash: an address may end with one, a network have it next to
	// a dot.
	parts := slices.DeleteFunc(strings.Split(name, "."), func(s string) bool { return strings.Trim(s, "-") == "" })
	for i := range parts {
		parts[i] = strings.Trim(parts[i], "-")
	}
	name = strings.Join(parts, ".")
	if len(name) > maxName {
		name = strings.TrimRight(name[:maxName-17], "-.") + "-" + hash(name)
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: name}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// newEntry makes the entry of a proxy from its group. Of labels, the proxy's own count most, then those that the group
// has for the entry's metadata, then its template's.
func newEntry(key types.NamespacedName, group *kinds.Object, p *node.Proxy) *Entry {
	g := group.Spec.(*networkingv1.WorkloadGroup)
	spec := &networkingv1.WorkloadEntry{}
	if t := g.GetTemplate(); t != nil {
		spec = proto.CloneOf(t)
	}
	labels := maps.Clone(spec.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, g.GetMetadata().GetLabels())
	maps.Copy(labels, p.Labels)
	spec.Labels, spec.Address = labels, p.IPs[0]
	if p.Network != "" {
		spec.Network = p.Network
	}
	if p.Locality[0] != "" {
		spec.Locality = strings.TrimRight(strings.Join(p.Locality[:], "/"), "/")
	}
	annotations := maps.Clone(g.GetMetadata().GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, k := range []string{annotationDisconnected, annotationHealth} {
		delete(annotations, k)
	}
	if p.ReadinessProbe {
		annotations[annotationHealth] = "true"
	}
	annotations[annotationGroup] = group.Name
	return &Entry{
		NamespacedName: key, Labels: maps.Clone(labels), Annotations: annotations, Spec: spec, Owner: Owner{group.Name, group.UID},
	}
}

// checkProxy returns what an API server would refuse of a proxy's own words, so that every store takes the same.
func checkProxy(p *node.Proxy) error {
	if len(p.IPs) == 0 {
		return fmt.Errorf("the proxy has no address: its id must hold one, or its metadata INSTANCE_IPS")
	}
	if ip, err := netip.ParseAddr(p.IPs[0]); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("the proxy's address %.64q is none that others can reach: INSTANCE_IPS in its metadata may name another", p.IPs[0])
	}
	for field, v := range map[string]string{"AUTO_REGISTER_GROUP": p.RegisterGroup, "NAMESPACE": p.Namespace} {
		if content.IsDNS1123Subdomain(v) != nil {
			return fmt.Errorf("metadata %s: %.64q is not the name of an object", field, v)
		}
	}
	if len(p.Labels) > maxLabels {
		return fmt.Errorf("metadata LABELS: %d labels, at most %d are allowed", len(p.Labels), maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if e := content.IsLabelKey(k); e != nil {
			return fmt.Errorf("metadata LABELS: key %.64q: %s", k, e[0])
		}
		if e := content.IsLabelValue(p.Labels[k]); e != nil {
			return fmt.Errorf("metadata LABELS: value of %.64q: %s", k, e[0])
		}
	}
	return nil
}

// claim records in an entry's annotations that this instance holds the proxy.
func (e *Entry) claim(instance string, since time.Time) {
	e.Annotations[annotationController] = instance
	e.Annotations[annotationConnected] = stamp(since)
	delete(e.Annotations, annotationDisconnected)
}

// release records that the proxy has gone.
func (e *Entry) release(at time.Time) {
	e.Annotations[annotationDisconnected] = stamp(at)
	delete(e.Annotations, annotationConnected)
}

// clone returns a copy whose maps may be changed.
func (e *Entry) clone() *Entry {
	c := *e
	c.Labels, c.Annotations = maps.Clone(e.Labels), maps.Clone(e.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return &c
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// readStamp returns the zero time for what is none.
func readStamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
