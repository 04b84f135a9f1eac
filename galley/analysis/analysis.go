package analysis

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Bounds of one run. A mesh that exceeds them usually repeats one mistake many times.
const (
	maxFindings = 1000 // findings of each analyzer
	maxHints    = 100  // searches for the name that a mistyped name stands for
)

// Options of Run.
type Options struct {
	Domain string       // DNS domain of the cluster
	Mesh   *mesh.Config // for its default exportTo and its root namespace
	Whole  bool         // the objects are the whole mesh: no cluster adds others
	Still  bool         // no object changes by itself, for example by a Pod getting its address; implied by Whole

	Advice bool // also report what is allowed and seldom intended
	HTTP3  bool // gateways serve HTTP/3 if their Services have UDP ports
	// ScopedGateways is true if a Gateway selects only workloads of its own namespace.
	ScopedGateways bool
	// PersistentSessions is true if labels of services ask for sessions that stay at one endpoint.
	PersistentSessions bool

	MultiCluster clusterset.Options // settings for the Multi-Cluster Services API

	Concerns func(*kinds.Object) bool // optional; reports whether findings about an object are wanted

	MeshConfig []kinds.Key // ConfigMaps with the mesh configuration; later ones take precedence

	RepeatedText, HostClusters int // limits of the same names; 0 stands for the default

	World World // nil if every Spec is of the Kubernetes type and the localities of endpoints are unknown
}

// World reads the objects and endpoints of a server.
type World interface {
	// Pod reads a Pod whose Spec is not of the Kubernetes type.
	Pod(*kinds.Object) Pod
	// Slice reads an EndpointSlice whose Spec is not of the Kubernetes type.
	Slice(*kinds.Object) Slice
	// Endpoints yields the labels of each endpoint of a host, including the labels of its locality.
	Endpoints(host string) iter.Seq[Labels]
}

// Labels are the labels of an endpoint.
type Labels interface {
	Lookup(name string) (value string, ok bool)
}

type analysis struct {
	*index
	subsets map[subset]*kinds.Object // first DestinationRule that defines a subset
	callers map[string]*clients      // clients of VirtualServices, by their own namespace and the selectors of their Gateways
	counts  map[subset]int           // number of subsets, keyed by all but their name
	// widest has the host with the most ports, by the namespace and host of the rules that apply to it.
	widest  map[subset]*host
	found   []diag.Diagnostic
	limit   int // maximum number of findings when the running analyzer has ended
	hints   int
	dropped int
	worst   diag.Severity // highest severity of the dropped findings

	// The fields below are caches, filled on demand.
	byKind      map[*kinds.Kind][]*kinds.Object        // objects by precedence
	inNamespace map[string][]*kinds.Object             // Services by precedence
	groups      map[*workload][]*serviceGroup          // groups of Services that select each workload
	opened      map[selectionKey]*exposedPorts         // results of exposed
	filters     map[filtered]filter                    // results of connectionFilters
	readers     map[selectionKey]bool                  // results of readsTokens, by the namespace and selector of the Gateway
	policies    []*kinds.Object                        // one RequestAuthentication with rules for each namespace and selector
	places      map[placeKey]placeValues               // results of placesOf
	modes       map[string]*kinds.Object               // first PeerAuthentication without a selector of each namespace
	behind      map[selectionKey]*workloadPorts        // results of portsBehind
	protocols   map[string]*hostProtocols              // results of readProtocols
	egress      *bool                                  // result of egressDecides
	accepted    map[selectionKey]map[string]bool       // results of acceptedIssuers
	ownTokens   map[string]bool                        // namespaces of EnvoyFilters that mention the filter of tokens
	peers       map[selectionKey]bool                  // results of appliesToPeers
	demands     map[selectionKey]identityDemands       // what AuthorizationPolicies demand of callers
	sharers     map[*kinds.Kind]map[string]*bySelector // results of selectorsOf
	ingress     map[string][]uint32                    // ports of ingress listeners of Sidecars, by namespace
	named       map[namedKey]*namedServers             // results of serversNamed
	secrets     map[kinds.Key]*corev1.Secret
	settings    map[string]*ruledSettings // results of settingsOf
	secured     map[kinds.Key]bool        // result of securedBackends
	led         map[string]bool           // result of ledHosts
	// gatewayGroups is the result of groupsOfGateways.
	gatewayGroups map[*workload][]*gatewayGroup
}

// Run returns findings about the relations between objects, in no order.
func Run(objects []*kinds.Object, o Options) []diag.Diagnostic {
	o.RepeatedText = cmp.Or(o.RepeatedText, limits.Default().RepeatedText)
	o.HostClusters = cmp.Or(o.HostClusters, limits.Default().HostClusters)
	a := &analysis{
		index: newIndex(objects, o), subsets: map[subset]*kinds.Object{},
		callers: map[string]*clients{}, counts: map[subset]int{}, widest: map[subset]*host{},
		opened: map[selectionKey]*exposedPorts{}, filters: map[filtered]filter{}, readers: map[selectionKey]bool{}, worst: diag.Info,
	}
	for _, one := range Analyzers() {
		if o.Advice || !one.Advice {
			a.limit = len(a.found) + maxFindings
			one.run(a)
		}
	}
	if a.dropped > 0 {
		a.found = append(a.found, More(a.dropped, a.worst, "references between objects"))
	}
	return a.found
}

// More returns a finding that stands for n others about something; worst is their highest severity.
func More(n int, worst diag.Severity, about string) diag.Diagnostic {
	return diag.Diagnostic{Severity: worst, Code: codeLimit,
		Message: fmt.Sprintf("%d more findings about %s are left out", n, about), Fix: "mend the others first"}
}

// LeftOut reports whether findings were dropped, that is, whether one of them is of More.
func LeftOut(found []diag.Diagnostic) bool {
	return slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Code == codeLimit && d.Object == "" })
}

// concerns reports whether findings about an object are wanted. It skips objects of remote clusters, which their own
// server reports, and last good versions, which exist in no source.
func (x *index) concerns(o *kinds.Object) bool {
	return o.Cluster == "" && !o.IsLastGood() && (x.options.Concerns == nil || x.options.Concerns(o))
}

// report adds a finding about a field of an object.
func (a *analysis) report(o *kinds.Object, severity diag.Severity, code, field, fix, format string, args ...any) {
	if !a.concerns(o) || suppressed(o, code) {
		return
	}
	if len(a.found) >= a.limit {
		a.dropped++
		a.worst = max(a.worst, severity)
		return
	}
	d := diag.Diagnostic{Severity: severity, Code: code, Object: o.String(), Field: field, Message: fmt.Sprintf(format, args...), Fix: fix}
	a.found = append(a.found, d.At(o.Position))
}

// suppressed reports whether the annotation of an object suppresses findings with a code, by the code's name here or in
// Istio.
func suppressed(o *kinds.Object, code string) bool {
	list := o.Annotations[kinds.AnnotationSuppress]
	if list == "" {
		return false
	}
	id := Describe(code).ID
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "*" || text == code || text == id {
			return true
		}
	}
	return false
}

// Unsuppressed returns the findings that the annotation of their object does not suppress. A finding about an object
// that is not in objects is kept.
func Unsuppressed(found []diag.Diagnostic, objects []*kinds.Object) []diag.Diagnostic {
	annotated := map[string]*kinds.Object{}
	for _, o := range objects {
		if o.Cluster == "" && o.Annotations[kinds.AnnotationSuppress] != "" {
			annotated[o.String()] = o
		}
	}
	return slices.DeleteFunc(found, func(d diag.Diagnostic) bool {
		o := annotated[d.Object]
		return o != nil && suppressed(o, d.Code)
	})
}

// of returns the objects of a kind by precedence.
func (a *analysis) of(kind *kinds.Kind) []*kinds.Object {
	if a.byKind == nil {
		a.byKind = map[*kinds.Kind][]*kinds.Object{}
		for _, o := range a.objects {
			a.byKind[o.Kind] = append(a.byKind[o.Kind], o)
		}
	}
	return a.byKind[kind]
}

// failing returns the severity of a fault that makes requests fail, provided that the objects include all Services.
func (a *analysis) failing() diag.Severity {
	if len(a.services) == 0 {
		return diag.Warning
	}
	return diag.Error
}

// nearest returns the known name that the user most likely meant. It returns "" if there is none, and after too many
// searches.
func (a *analysis) nearest(name string, known []string) string {
	if a.hints++; a.hints > maxHints {
		return ""
	}
	return diag.Nearest(name, known)
}

// listed returns a short list of names as text.
func listed(list []string) string {
	const most = 8
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	if len(list) > most {
		return strings.Join(list[:most], ", ") + " and more"
	}
	return strings.Join(list, ", ")
}

// byPrecedence orders objects that compete: the oldest first, those of one age by name and namespace.
func byPrecedence(x, y *kinds.Object) int {
	if c := x.Created.Compare(y.Created); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Namespace, y.Namespace))
}

// exported reports whether an object in namespace own with a list exportTo is visible in namespace to.
func exported(exportTo, byDefault []string, own, to string) bool {
	return slices.ContainsFunc(exports(exportTo, byDefault), func(e string) bool { return e == "*" || e == to || e == "." && own == to })
}

// exports returns the exportTo in force for an object: its own, else the default of the mesh, else all namespaces.
func exports(exportTo, byDefault []string) []string {
	for _, list := range [][]string{exportTo, byDefault} {
		if len(list) > 0 {
			return list
		}
	}
	return []string{"*"}
}
