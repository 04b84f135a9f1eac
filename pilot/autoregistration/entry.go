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

// Annotations of registered entries.
const (
	annotationGroup = names.AnnotationRegistrationGroup
	// annotationController is the instance that holds, or last held, the proxy's stream.
	annotationController   = names.AnnotationWorkloadController
	annotationConnected    = names.AnnotationConnected    // RFC 3339 time; absent while the proxy is disconnected
	annotationDisconnected = names.AnnotationDisconnected // RFC 3339 time; absent while the proxy is connected
	annotationHealth       = names.AnnotationHealthChecks
)

// Limits on what a proxy contributes to its entry.
const (
	maxName    = 253     // bytes
	maxLabels  = 64      // number of labels
	maxMessage = 1 << 10 // bytes of a health report
)

// Entry is a WorkloadEntry in a Store.
type Entry struct {
	types.NamespacedName
	UID         string
	Version     string // resourceVersion; if it is not empty, a write fails if the stored version differs
	Labels      map[string]string
	Annotations map[string]string
	Owner       Owner
	Created     time.Time
	Spec        *networkingv1.WorkloadEntry
	Health      *Condition // nil if no health was reported

	conditions []map[string]any // conditions of other types
}

// Owner is the WorkloadGroup that owns an entry. Deleting it deletes the entry.
type Owner struct{ Name, UID string }

// Condition is the condition Healthy in an entry's status.
type Condition struct {
	Healthy bool
	Message string
	Probed  time.Time // time of the report
	Changed time.Time // time at which Healthy last changed
}

// equal reports whether c and o agree, apart from times.
func (c *Condition) equal(o *Condition) bool {
	return o != nil && c.Healthy == o.Healthy && c.Message == o.Message
}

// keyOf returns the name of a proxy's entry, which is the same at every replica. It is <group>-<address>[-<network>],
// as in Istio. A network that is not a valid name of an object is followed by its hash, because otherwise networks
// such as n_1 and n-1 would share an entry.
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
	// No part of the name between dots may begin or end with a dash. An address can end with a colon, and a network can
	// contain a dash next to a dot.
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

// newEntry makes the entry of a proxy from its group. For labels, the proxy's take precedence over those in the
// group's metadata, and these over those in its template.
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

// checkProxy returns an error for metadata that an API server would refuse, so that all stores refuse the same.
func checkProxy(p *node.Proxy) error {
	if len(p.IPs) == 0 {
		return fmt.Errorf("the proxy has no address: its ID or its metadata INSTANCE_IPS must contain one")
	}
	if ip, err := netip.ParseAddr(p.IPs[0]); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("other workloads cannot reach the proxy's address %.64q: set INSTANCE_IPS in its metadata to another one", p.IPs[0])
	}
	for field, v := range map[string]string{"AUTO_REGISTER_GROUP": p.RegisterGroup, "NAMESPACE": p.Namespace} {
		if content.IsDNS1123Subdomain(v) != nil {
			return fmt.Errorf("metadata %s: %.64q is not a valid name of an object", field, v)
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

// claim records in the annotations that an instance holds the proxy.
func (e *Entry) claim(instance string, since time.Time) {
	e.Annotations[annotationController] = instance
	e.Annotations[annotationConnected] = stamp(since)
	delete(e.Annotations, annotationDisconnected)
}

// release records that the proxy has disconnected.
func (e *Entry) release(at time.Time) {
	e.Annotations[annotationDisconnected] = stamp(at)
	delete(e.Annotations, annotationConnected)
}

// clone returns a copy with maps of its own.
func (e *Entry) clone() *Entry {
	c := *e
	c.Labels, c.Annotations = maps.Clone(e.Labels), maps.Clone(e.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return &c
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// parseStamp parses a time of stamp. It returns the zero time if s is not one.
func parseStamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
