package gatewayapi

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// gateway is the state of one Gateway and its ListenerSets.
type gateway struct {
	object *kinds.Object
	sets   []*listenerSet // sorted by age
	looked *lookups       // set while it is being made

	listeners          []*listener                // listeners of the Gateway, then of its sets
	of                 map[kinds.Key][]*listener  // the same listeners by owner
	http               map[hostnamePort]*listener // HTTP listeners that take connections
	workloads          []kinds.WorkloadSelector
	account            string     // service account of its proxies; empty if not known
	services           []service  // services that lead to its proxies
	unsupportedAddress string     // first unsupported type in spec.addresses; empty if all are supported
	certificate        string     // credential presented to backends; empty if there is none
	unresolved         *condition // why the certificate cannot be used
	badParameters      string     // why spec.infrastructure.parametersRef cannot be read; empty if it can
	unnamed            bool       // whether a Service of spec.addresses has no address yet
	addresses          []gatewayv1.GatewayStatusAddress
	shared             []kinds.SharedSecret
	findings           []diag.Diagnostic

	judged map[kinds.Key][]int32 // number of attached routes of each listener in the last status, by owner
}

// listenerSet is a ListenerSet of a Gateway.
type listenerSet struct {
	object   *kinds.Object
	allowed  bool // whether the Gateway allows the set
	namesake bool // whether a Gateway has the same name and namespace
}

// service is a Service that leads to the proxies of a Gateway.
type service struct {
	host    string
	object  *kinds.Object // nil if there is none
	problem string        // why the Service is not used
}

func gatewaySpec(o *kinds.Object) *gatewayv1.GatewaySpec { return &o.Spec.(*gatewayv1.Gateway).Spec }

func listenerSetSpec(o *kinds.Object) *gatewayv1.ListenerSetSpec {
	return &o.Spec.(*gatewayv1.ListenerSet).Spec
}

// takeSet replaces one version of a ListenerSet by another. Either may be nil.
func (r *run) takeSet(was, now *kinds.Object) {
	var before, after kinds.Key
	if was != nil {
		before, _ = parentOf(was)
	}
	if now != nil {
		after, _ = parentOf(now)
	}
	if before != after && was != nil {
		if delete(r.sets[before], was.Key); len(r.sets[before]) == 0 {
			delete(r.sets, before)
		}
		r.due(before, true)
		r.changed(cell{cellParent, was.Key})
	}
	if now == nil {
		return
	}
	if before != after {
		r.changed(cell{cellParent, now.Key})
	}
	lists.PutIn(r.sets, after, now.Key, now)
	r.due(after, was == nil || before != after)
}

// parentOf returns the key of the Gateway that a ListenerSet names. It returns false if the parent is of another kind.
func parentOf(o *kinds.Object) (kinds.Key, bool) {
	ref := listenerSetSpec(o).ParentRef
	is := groupOr(ref.Group, kinds.KubeGateway.Group) == kinds.KubeGateway.Group && kindOr(ref.Kind, "Gateway") == "Gateway"
	if !is {
		return kinds.Key{Kind: kinds.KubeGateway}, false
	}
	return kinds.Key{Kind: kinds.KubeGateway, Namespace: namespaceOr(ref.Namespace, o.Namespace), Name: string(ref.Name)}, true
}

// makeGateways makes the Gateways of this controller that are due, with their ListenerSets.
func (r *run) makeGateways() {
	for key, rebuild := range r.unitsDue[kinds.KubeGateway] {
		o, was := r.objects[kinds.KubeGateway][key], r.gateways[key]
		sets := slices.SortedFunc(maps.Values(r.sets[key]), older)
		if !rebuild && was != nil && o != nil && was.adopt(o, sets) {
			r.statusesDue[was] = true
			continue
		}
		if o == nil {
			r.read(key, nil)
			r.put(key, derive.Part{})
			r.replaceGateway(key, was, nil)
			continue
		}
		l := &lookups{run: r}
		is, found := l.served(o)
		if is {
			g := makeGateway(l, o, sets)
			r.replaceGateway(key, was, g)
			part := derive.Part{Findings: g.findings, Shared: g.shared}
			for _, l := range g.listeners {
				if l.derived != nil {
					part.Objects = append(part.Objects, *l.derived)
				}
			}
			r.put(key, part)
		} else {
			r.put(key, derive.Part{Findings: found})
			r.replaceGateway(key, was, nil)
		}
		r.read(key, l)
	}
}

// replaceGateway replaces one version of a Gateway by another. Either may be nil. Listeners of unchanged owners are
// kept, and routes that attach only to these stay as they are.
func (r *run) replaceGateway(key kinds.Key, was, now *gateway) {
	if was == nil && now == nil {
		return
	}
	before := was.isolated()
	if was == nil || now == nil || (len(was.sets) > 0) != (len(now.sets) > 0) {
		r.changed(cell{cellGateway, key})
		r.changed(cell{cellListeners, key})
	}
	last, next := cmp.Or(was, &gateway{}), cmp.Or(now, &gateway{})
	for owner := range next.of {
		if !next.keep(last, owner) {
			r.changed(cell{cellListeners, owner})
		}
	}
	for owner := range last.of {
		if next.of[owner] == nil {
			r.changed(cell{cellListeners, owner})
		}
	}
	next.list()
	r.changedHostnames(key, last.http, next.http)
	r.isolate(before, now.isolated())
	for _, s := range last.sets {
		if !slices.ContainsFunc(next.sets, func(o *listenerSet) bool { return o.object.Key == s.object.Key }) {
			r.put(statusOf(s.object.Key), derive.Part{}) // another Gateway that has the set now makes its status later
		}
	}
	if delete(r.gateways, key); now != nil {
		r.gateways[key] = now
		r.statusesDue[now] = true
	} else {
		r.put(statusOf(key), derive.Part{})
	}
	if delete(r.certified, key); now != nil && now.certificate != "" {
		r.certified[key] = now
	}
	if was != nil && was.certificate != "" || now != nil && now.certificate != "" {
		r.certificatesDue[key] = true
	}
}

// makeSets finds errors in the parents of ListenerSets.
func (r *run) makeSets() {
	for key := range r.unitsDue[kinds.ListenerSet] {
		o := r.objects[kinds.ListenerSet][key]
		if o == nil {
			r.read(key, nil)
			r.put(key, derive.Part{})
			continue
		}
		l, part := &lookups{run: r}, derive.Part{}
		if parent, is := parentOf(o); !is {
			part.Findings = []diag.Diagnostic{finding(o, diag.Warning, "ListenerSet", "spec.parentRef.kind", "name a Gateway",
				"its parent is not a Gateway: it has no effect")}
		} else if !l.exists(parent) {
			part.Findings = []diag.Diagnostic{finding(o, diag.Warning, "ListenerSet", "spec.parentRef.name",
				"add the Gateway, or name another", "there is no Gateway "+parent.Namespace+"/"+parent.Name+": it has no effect")}
		}
		r.put(key, part)
		r.read(key, l)
	}
}

// sameButStatus reports whether two versions of an object differ only in their status and metadata that the API server
// writes.
func sameButStatus(a, b *kinds.Object, specOf func(*kinds.Object) any) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.Created.Equal(b.Created) && a.Relayed == b.Relayed &&
		a.Position == b.Position && a.Extra == b.Extra &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && reflect.DeepEqual(specOf(a), specOf(b))
}

// adopt replaces the objects of the Gateway and of its ListenerSets by other versions if these differ only in their
// statuses. Routes stay as they are: writing the number of attached routes into a status does not make the routes
// again.
func (g *gateway) adopt(o *kinds.Object, sets []*kinds.Object) bool {
	if len(sets) != len(g.sets) || g.object != o && !sameButStatus(g.object, o, func(o *kinds.Object) any { return gatewaySpec(o) }) {
		return false
	}
	for i, s := range g.sets {
		if s.object != sets[i] && (s.object.Key != sets[i].Key || !sameButStatus(s.object, sets[i], func(o *kinds.Object) any {
			return listenerSetSpec(o)
		})) {
			return false
		}
	}
	versions := map[*kinds.Object]*kinds.Object{g.object: o}
	for i, s := range g.sets {
		versions[s.object] = sets[i]
		s.object = sets[i]
	}
	for _, l := range g.listeners {
		l.owner = versions[l.owner]
	}
	for before, after := range versions {
		if before != after {
			delete(g.judged, after.Key)
		}
	}
	g.object = o
	return true
}

func makeGateway(looked *lookups, o *kinds.Object, sets []*kinds.Object) *gateway {
	g := &gateway{object: o, looked: looked, http: map[hostnamePort]*listener{}, of: map[kinds.Key][]*listener{},
		judged: map[kinds.Key][]int32{}}
	spec := gatewaySpec(o)
	for i, l := range spec.Listeners {
		g.listeners = append(g.listeners, &listener{gateway: g, owner: o, ownerName: o.Name, field: fmt.Sprintf("spec.listeners[%d]", i),
			Listener: l})
	}
	for _, s := range sets {
		set := &listenerSet{object: s, allowed: g.allowsSet(s),
			namesake: looked.exists(kinds.Key{Kind: kinds.KubeGateway, Namespace: s.Namespace, Name: s.Name})}
		g.sets = append(g.sets, set)
		if !set.allowed {
			g.found(s, diag.Warning, "spec.parentRef", "allow it in spec.allowedListeners of the Gateway",
				"the Gateway allows no listeners of this namespace: it has no effect")
			continue
		}
		name := s.Name
		if set.namesake {
			name += "~listenerset" // objects derived from the Gateway have the other name
		}
		for i, l := range listenerSetSpec(s).Listeners {
			g.listeners = append(g.listeners, &listener{gateway: g, owner: s, ownerName: name, field: fmt.Sprintf("spec.listeners[%d]", i),
				Listener: gatewayv1.Listener(l)})
		}
	}
	for _, l := range g.listeners {
		g.of[l.owner.Key] = append(g.of[l.owner.Key], l)
	}
	g.findServices()
	g.resolveListeners()
	g.resolveCertificate()
	g.resolveParameters()
	g.unsupported()
	g.looked = nil
	return g
}

// resolveParameters checks that the parameters for deploying the proxies of a Gateway exist.
func (g *gateway) resolveParameters() {
	i := gatewaySpec(g.object).Infrastructure
	if i == nil || i.ParametersRef == nil {
		return
	}
	ref, fix := i.ParametersRef, "name a ConfigMap, with the group empty"
	switch key := (kinds.Key{Kind: kinds.ConfigMap, Namespace: g.object.Namespace, Name: ref.Name}); {
	case ref.Group != "" || ref.Kind != "ConfigMap":
		g.badParameters = fmt.Sprintf("parametersRef %s/%s %s cannot be read, only ConfigMap is supported", ref.Group, ref.Kind, ref.Name)
	case g.looked.object(key) == nil:
		g.badParameters, fix = fmt.Sprintf("parametersRef ConfigMap %s/%s not found", key.Namespace, key.Name),
			"add the ConfigMap, or name another"
	default:
		return
	}
	g.found(g.object, diag.Error, "spec.infrastructure.parametersRef", fix, g.badParameters+": no proxy is deployed for the Gateway")
}

func (g *gateway) found(o *kinds.Object, severity diag.Severity, field, fix, message string) {
	g.findings = append(g.findings, finding(o, severity, "Gateway", field, fix, message))
}

// share lets the proxies of the Gateway have a secret of a namespace, by the name of its resource. Proxies are known by
// their service account: the account of the proxies that are deployed for the Gateway, or the account that an
// annotation of the Gateway names. If neither is known, a secret of another namespace is shared with accounts of the
// Gateway's namespace that may list the Secrets there. A secret of the Gateway's own namespace is not shared then,
// because such accounts may have it anyway.
func (g *gateway) share(namespace, resource string) {
	if g.account != "" || namespace != g.object.Namespace {
		g.shared = append(g.shared, kinds.SharedSecret{Namespace: g.object.Namespace, Account: g.account, Resource: resource})
	}
}

// allowsSet reports whether a ListenerSet may add listeners.
func (g *gateway) allowsSet(o *kinds.Object) bool {
	allowed := gatewaySpec(g.object).AllowedListeners
	if allowed == nil || allowed.Namespaces == nil || allowed.Namespaces.From == nil {
		return false
	}
	return g.looked.allowsNamespace(*allowed.Namespaces.From, allowed.Namespaces.Selector, g.object.Namespace, o.Namespace)
}

// gatewayNameLabel is the label on the proxies of a Gateway that holds the Gateway's name.
const gatewayNameLabel = names.LabelGateway

// findServices finds the Services that lead to the proxies of a Gateway: those of type Hostname in spec.addresses, or
// else the Service that is created for the Gateway.
func (g *gateway) findServices() {
	r, o := g.looked.run, g.object
	var wanted []service
	for i, a := range gatewaySpec(o).Addresses {
		if a.Type != nil && *a.Type == gatewayv1.IPAddressType || a.Value == "" {
			continue // an address of the Service that is created
		}
		field := fmt.Sprintf("spec.addresses[%d]", i)
		if a.Type == nil || *a.Type != gatewayv1.HostnameAddressType {
			if a.Type != nil {
				g.found(o, diag.Warning, field+".type", "write Hostname or IPAddress", "addresses of type "+string(*a.Type)+" are not supported")
				g.unsupportedAddress = cmp.Or(g.unsupportedAddress, string(*a.Type))
			}
			continue
		}
		name, ns := a.Value, o.Namespace
		if first, rest, qualified := strings.Cut(a.Value, "."); qualified {
			name = first
			ns, _, _ = strings.Cut(rest, ".")
			if suffix := ".svc." + r.o.Domain; a.Value != name+"."+ns+suffix && a.Value != name+"."+ns+".svc" && a.Value != name+"."+ns {
				g.found(o, diag.Warning, field+".value", "write <name>.<namespace>.svc."+r.o.Domain, "no Service of this cluster has this name")
				wanted = append(wanted, service{host: a.Value})
				continue
			}
		}
		s := g.looked.object(kinds.Key{Kind: kinds.Service, Namespace: ns, Name: name})
		host := name + "." + ns + ".svc." + r.o.Domain
		if s != nil && ns != o.Namespace {
			g.found(o, diag.Error, field+".value", "name a Service of the Gateway's namespace",
				"the Service is in another namespace: no proxy serves the Gateway by it")
			wanted = append(wanted, service{host: host, problem: fmt.Sprintf("hostname %q not found in namespace %q, but it was found in "+
				"namespace(s) %q", host, o.Namespace, ns)})
			continue
		}
		if s == nil {
			g.found(o, diag.Error, field+".value", "add the Service, or name another",
				"there is no Service "+ns+"/"+name+": no proxy serves the Gateway by it")
		} else if selector := s.Spec.(*corev1.Service).Spec.Selector; len(selector) > 0 {
			g.workloads = append(g.workloads, kinds.WorkloadSelector{Namespace: ns, Labels: selector})
		} else {
			g.found(o, diag.Error, field+".value", "give the Service a selector", "the Service has no selector: no proxy serves the Gateway by it")
		}
		wanted = append(wanted, service{host: host, object: s})
	}
	if len(wanted) == 0 {
		name := names.GatewayDeployment(o.Name, string(gatewaySpec(o).GatewayClassName), o.Annotations)
		wanted = []service{{host: name + "." + o.Namespace + ".svc." + r.o.Domain,
			object: g.looked.object(kinds.Key{Kind: kinds.Service, Namespace: o.Namespace, Name: name})}}
		g.workloads = []kinds.WorkloadSelector{{Namespace: o.Namespace, Labels: map[string]string{gatewayNameLabel: o.Name}}}
		if n := len(gatewaySpec(o).Addresses); n == 0 || n == 1 && g.unsupportedAddress == "" { // otherwise no proxies are deployed
			g.account = names.GatewayAccount(o.Name, string(gatewaySpec(o).GatewayClassName), o.Annotations)
		}
	}
	g.account = cmp.Or(g.account, names.NamedGatewayAccount(o.Annotations))
	if g.workloads == nil {
		g.workloads = []kinds.WorkloadSelector{}
	}
	g.services = wanted
	g.findAddresses()
}

// findAddresses finds the addresses for clients of the Gateway: the external addresses of its Services, or their names
// within the cluster.
func (g *gateway) findAddresses() {
	ip, hostname := gatewayv1.IPAddressType, gatewayv1.HostnameAddressType
	add := func(kind *gatewayv1.AddressType, value string) {
		same := func(a gatewayv1.GatewayStatusAddress) bool { return a.Value == value }
		if value != "" && !slices.ContainsFunc(g.addresses, same) {
			g.addresses = append(g.addresses, gatewayv1.GatewayStatusAddress{Type: kind, Value: value})
		}
	}
	for _, s := range g.services {
		if s.object == nil {
			continue
		}
		spec, status := s.object.Spec.(*corev1.Service).Spec, s.object.Spec.(*corev1.Service).Status
		for _, a := range spec.ExternalIPs {
			add(&ip, a)
		}
		for _, in := range status.LoadBalancer.Ingress {
			add(&ip, in.IP)
			add(&hostname, strings.ToLower(in.Hostname))
		}
		if spec.Type != corev1.ServiceTypeLoadBalancer && len(spec.ExternalIPs) == 0 {
			add(&hostname, s.host)
		}
		g.unnamed = g.unnamed || len(g.addresses) == 0
	}
}

// exposes reports whether connections can reach a listener: a Service has its port, or there is no Service yet.
func (g *gateway) exposes(l *listener) bool {
	none := true
	for _, s := range g.services {
		if s.object == nil {
			continue
		}
		none = false
		if slices.ContainsFunc(s.object.Spec.(*corev1.Service).Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == l.Port }) {
			return true
		}
	}
	if !none {
		g.found(l.owner, diag.Warning, l.field+".port", "add the port to the Service",
			fmt.Sprintf("no Service of the Gateway has port %d: the listener takes no connections", l.Port))
	}
	return none
}

// exposed returns the ports of listeners that each Service has, as "host:port", and the missing ones.
func (g *gateway) exposed(listeners []*listener) (has, lacks []string) {
	for _, s := range g.services {
		if s.problem != "" {
			lacks = append(lacks, s.problem)
		} else if s.object == nil {
			lacks = append(lacks, fmt.Sprintf("hostname %q not found", s.host))
		}
	}
	for _, l := range listeners {
		for _, s := range g.services {
			if s.object == nil {
				continue
			}
			port := l.Port
			if slices.ContainsFunc(s.object.Spec.(*corev1.Service).Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }) {
				has = append(has, s.host+":"+strconv.Itoa(int(port)))
			} else {
				lacks = append(lacks, fmt.Sprintf("port %d not found for hostname %q", port, s.host))
			}
		}
	}
	slices.Sort(has)
	slices.Sort(lacks)
	return slices.Compact(has), slices.Compact(lacks)
}

// unsupported adds a finding for each field that has no effect.
func (g *gateway) unsupported() {
	spec := gatewaySpec(g.object)
	add := func(field, fix, message string) { g.found(g.object, diag.Warning, field, fix, message) }
	if spec.DefaultScope != "" && spec.DefaultScope != gatewayv1.GatewayDefaultScopeNone {
		add("spec.defaultScope", "name the Gateway in spec.parentRefs of routes", "default Gateways are not supported: it has no effect")
	}
}

// exactOrWild returns the hostname of a listener, "*" if it has none.
func exactOrWild(h *gatewayv1.Hostname) string {
	if h == nil {
		return "*"
	}
	return cmp.Or(strings.ToLower(string(*h)), "*")
}

// mostSpecific returns the more specific one of two overlapping hosts. It returns false if no name matches both.
func mostSpecific(a, b string) (string, bool) {
	switch {
	case names.Covers(a, b):
		return b, true
	case names.Covers(b, a):
		return a, true
	}
	return "", false
}
