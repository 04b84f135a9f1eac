package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/difference"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// idleResources bounds the bytes of resources that are kept for proxies that share them.
const idleResources = 32 << 20

// Inspection is a configuration that was read once, without serving it.
type Inspection struct {
	Findings []diag.Diagnostic
	Objects  int
	// Snapshot is nil when a server would have refused to start, for the reason in Refusal.
	Snapshot *snapshot.Snapshot
	Refusal  error

	o          ingest.Options
	features   catalog.List
	world      *ingest.World
	translator *translate.Translator
	sources    []diag.Diagnostic // what the sources found
}

// Read reads the configuration that o names, for translation with some features.
func Read(ctx context.Context, o ingest.Options, features catalog.List) (*Inspection, error) {
	i := &Inspection{o: o, features: features, world: ingest.New(o, ingest.Parts{Stages: catalog.Stages(o.Domain, o.Namespace), Catalog: features, Still: o.Cluster == nil})}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sources *ingest.Sources
	sources, err := ingest.NewSources(o, o.Instance(), prometheus.NewRegistry(), func(changes []kinds.Change) {
		if ctx.Err() == nil { // what comes after the whole is not looked at
			s := i.world.Commit(changes, time.Time{})
			if len(sources.Awaited()) == 0 {
				i.Snapshot = s
				cancel()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	err = sources.Run(ctx)
	switch {
	case i.Snapshot != nil:
		i.translator = translate.New(translate.Options{Features: features, Idle: idleResources})
	case err == nil:
		return nil, sources.Wait(ctx)
	default:
		i.Refusal = err
	}
	if err := i.readSecrets(caller); err != nil {
		return nil, err
	}
	i.sources = sources.Findings()
	if i.Findings, err = i.findings(i.sources); err != nil {
		return nil, err
	}
	i.Objects = len(i.world.Objects())
	return i, nil
}

// readSecrets reads those of a cluster, one by one, once it is known which.
func (i *Inspection) readSecrets(ctx context.Context) error {
	if i.o.Cluster == nil || i.Snapshot == nil {
		return nil
	}
	changes, err := i.o.Cluster.Get(ctx, i.world.AbsentCredentials())
	if err != nil {
		return err
	}
	i.Snapshot = i.world.Commit(changes, time.Time{})
	return nil
}

// findings returns all that is wrong now, with what the sources found, by position.
func (i *Inspection) findings(sources []diag.Diagnostic) ([]diag.Diagnostic, error) {
	list := slices.Concat(sources, i.world.Findings(), i.world.Analyze())
	if i.Snapshot != nil {
		found, err := i.patches(i.features)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	list = i.world.Unsuppressed(list)
	slices.SortStableFunc(list, config.ByPosition)
	return list, nil
}

// Pods returns the Pods that count, as NAME.NAMESPACE.
func (i *Inspection) Pods() []string {
	var list []string
	for _, o := range i.world.ObjectsOf(kinds.Pod) {
		list = append(list, o.Name+"."+o.Namespace)
	}
	slices.Sort(list)
	return list
}

// PodNode returns the node that the proxy of a Pod has, as injection would write it, or nil if there is no such Pod.
func (i *Inspection) PodNode(name, namespace string) *corev3.Node {
	o := i.world.Object(kinds.Key{Kind: kinds.Pod, Namespace: namespace, Name: name})
	if o == nil {
		return nil
	}
	return node.Format(i.proxy(o))
}

// proxy returns the proxy that a Pod has, as injection would write it. Of a cluster's Pods the containers are not
// known: one is a gateway if a Gateway selects it.
func (i *Inspection) proxy(o *kinds.Object) *node.Proxy {
	f := kube.FactsOfPod(o)
	p := &node.Proxy{
		Type: node.Sidecar, Name: o.Name, Namespace: o.Namespace, Domain: o.Namespace + ".svc." + i.o.Domain, IPs: f.Addresses, Cluster: i.o.ClusterID, NodeName: f.NodeName,
		Workload: f.Owner, Account: f.ServiceAccount, MeshID: i.Snapshot.Mesh.GetTrustDomain(), Labels: o.Labels, Annotations: o.Annotations, Interception: node.Redirect,
	}
	gateway := o.Annotations["inject.istio.io/templates"] == "gateway"
	if pod, whole := o.Spec.(*corev1.Pod); whole {
		gateway = gateway || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return c.Name == "istio-proxy" && slices.Contains(c.Args, string(node.Router))
		})
	} else {
		gateway = gateway || slices.ContainsFunc(i.world.ObjectsOf(kinds.Gateway), func(g *kinds.Object) bool {
			selector := g.Spec.(*networkingv1.Gateway).GetSelector()
			return len(selector) > 0 && kinds.Selects(selector, o.Labels) || g.Extra != nil && g.Extra.Selects(o.Namespace, o.Labels)
		})
	}
	if gateway {
		p.Type = node.Router
	}
	if mode := o.Annotations["sidecar.istio.io/interceptionMode"]; mode != "" {
		p.Interception = node.Interception(mode)
	}
	return p
}

// Resources returns what that proxy would be sent, by type URL: all clusters and listeners, and the endpoints and
// routes that these name.
func (i *Inspection) Resources(n *corev3.Node) (map[string][]*envoy.Resource, error) {
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	proxy, err := node.Parse(n)
	if err != nil {
		return nil, err
	}
	return i.resources(i.translator, i.translator.ResolveCohort(i.Snapshot, proxy))
}

func (i *Inspection) resources(translator *translate.Translator, k cohort.Key) (map[string][]*envoy.Resource, error) {
	out := map[string][]*envoy.Resource{}
	get := func(typeURL string, names *envoy.Names) error {
		u, err := translator.Get(i.Snapshot, k, typeURL, names)
		out[typeURL] = slices.AppendSeq(out[typeURL], u.All)
		return err
	}
	names := difference.References{}
	for _, typeURL := range []string{envoy.ClusterType, envoy.ListenerType} {
		if err := get(typeURL, nil); err != nil {
			return nil, err
		}
		for _, r := range out[typeURL] {
			if err := names.Add(typeURL, r); err != nil {
				return nil, fmt.Errorf("read %s: %w", r.Name, err)
			}
		}
	}
	delete(names, envoy.SecretType) // what they hold is not shown
	var interner envoy.NameInterner
	for typeURL, list := range names {
		if err := get(typeURL, interner.Intern(list)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Statuses returns what the statuses of objects should be.
func (i *Inspection) Statuses() []*derive.Status { return i.world.Statuses() }
