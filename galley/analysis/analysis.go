package analysis

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Bounds on one run. A mesh that exceeds them has one mistake many times over.
const (
	maxFindings = 1000 // of each analyzer
	maxHints    = 100  // searches for a name that was meant
)

// Options of Run.
type Options struct {
	Domain string       // of the cluster
	Mesh   *mesh.Config // its defaults of exportTo, and the root namespace
	Whole  bool         // the objects are the whole mesh: no cluster adds to them
	Still  bool         // no object changes by itself: a Pod without an address stays without. What is Whole is Still.

	Advice bool // look also for what is allowed and seldom meant
	HTTP3  bool // gateways take HTTP/3 where their Services have UDP ports

	Concerns func(*kinds.Object) bool // whether findings about an object are wanted; nil: about all

	MeshConfig []kinds.Key // the ConfigMaps that hold the mesh configuration, the one that takes precedence last

	RepeatedText, HostClusters int // the limits of those names; 0 is the default

	World World // nil if every Spec is of the Kubernetes type, and the places of endpoints are not known
}

// World reads the objects and endpoints of a server.
type World interface {
	// Pod reads a Pod whose Spec is not of the Kubernetes type.
	Pod(*kinds.Object) Pod
	// Slice reads an EndpointSlice whose Spec is not of the Kubernetes type.
	Slice(*kinds.Object) Slice
	// Endpoints yields the labels of each endpoint of a host, the labels of its place among them.
	Endpoints(host string) iter.Seq[Labels]
}

// Labels are the labels of an endpoint.
type Labels interface {
	Lookup(name string) (value string, ok bool)
}

type analysis struct {
	*index
	subsets map[subset]*kinds.Object // by the first that defines it
	callers map[string]*clients      // of VirtualServices, by their own namespace and the selectors of their Gateways
	counts  map[subset]int           // how many there are, by all but their name
	// those with the most ports, by the namespace and host of the rules that count for them
	widest  map[subset]*host
	found   []diag.Diagnostic
	limit   int // how many there may be when the analyzer that runs has ended
	hints   int
	dropped int
	worst   diag.Severity // of those that were dropped

	// These are made when somebody asks.
	byKind      map[*kinds.Kind][]*kinds.Object // by precedence
	inNamespace map[string][]*kinds.Object      // Services, by precedence
	groups      map[*workload][]*serviceGroup   // those that select each workload
	opened      map[string]*exposedPorts        // what exposed returned, by the selector
	filters     map[filtered]filter             // what connectionFilters returned
	readers     map[selectionKey]bool           // what readsTokens returned, by the namespace and selector of the Gateway
	policies    []*kinds.Object                 // one RequestAuthentication with rules for each namespace and selector
	places      map[placeKey]placeValues        // what placesOf returned
}

// Run returns what is wrong between the objects, in no order.
func Run(objects []*kinds.Object, o Options) []diag.Diagnostic {
	o.RepeatedText = cmp.Or(o.RepeatedText, limits.Default().RepeatedText)
	o.HostClusters = cmp.Or(o.HostClusters, limits.Default().HostClusters)
	a := &analysis{
		index: newIndex(objects, o), subsets: map[subset]*kinds.Object{}, callers: map[string]*clients{}, counts: map[subset]int{}, widest: map[subset]*host{},
		opened: map[string]*exposedPorts{}, filters: map[filtered]filter{}, readers: map[selectionKey]bool{}, worst: diag.Info,
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

// More returns the finding that stands for others about something, the worst of them of a severity.
func More(n int, worst diag.Severity, about string) diag.Diagnostic {
	return diag.Diagnostic{Severity: worst, Code: codeLimit, Message: fmt.Sprintf("%d more findings about %s are left out", n, about), Fix: "mend the others first"}
}

// LeftOut reports whether there is more than the findings say.
func LeftOut(found []diag.Diagnostic) bool {
	return slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Code == codeLimit && d.Object == "" })
}

// report adds a finding about a field of an object. It leaves out objects of remote clusters, which their own server
// reports, and last good versions, which are not written anywhere.
func (a *analysis) report(o *kinds.Object, severity diag.Severity, code, field, fix, format string, args ...any) {
	if o.Cluster != "" || o.IsLastGood() || suppressed(o, code) || a.options.Concerns != nil && !a.options.Concerns(o) {
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

// suppressed reports whether the annotation of an object asks for no finding with that code, by its name here or by
// Istio's.
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

// Unsuppressed returns the findings without those that the annotation of their object suppresses. A finding about an
// object that is not among objects stays.
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

// failing returns the severity of what makes requests fail if no Service is missing among the objects.
func (a *analysis) failing() diag.Severity {
	if len(a.services) == 0 {
		return diag.Warning
	}
	return diag.Error
}

// nearest returns the name that was most likely meant, or "": also once too many names were searched for.
func (a *analysis) nearest(name string, known []string) string {
	if a.hints++; a.hints > maxHints {
		return ""
	}
	return diag.Nearest(name, known)
}

// listed returns a few of the names as text.
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
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Namespace, y.Namespace))
}

// exported reports whether an object of namespace own, with that exportTo, is visible in namespace to.
func exported(exportTo, byDefault []string, own, to string) bool {
	return slices.ContainsFunc(exports(exportTo, byDefault), func(e string) bool { return e == "*" || e == to || e == "." && own == to })
}

// exports returns the exportTo that counts for an object: its own, or else the default of the mesh, or else all
// namespaces.
func exports(exportTo, byDefault []string) []string {
	for _, list := range [][]string{exportTo, byDefault} {
		if len(list) > 0 {
			return list
		}
	}
	return []string{"*"}
}
