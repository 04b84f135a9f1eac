package trace

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// Target is a cluster that gets a share of the matching requests.
type Target struct {
	Cluster   string     `json:"cluster"`
	Share     float64    `json:"share"` // percentage
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Origin    Origin     `json:"-"`               // the DestinationRule of the cluster, if it has one
	TLSBy     string     `json:"tlsBy,omitempty"` // the field of a DestinationRule that sets TLS; empty if none does
	Subset    string     `json:"subset,omitempty"`
	Original  bool       `json:"original,omitempty"` // whether the connection goes to its original address, or to the host that is called

	TLS   string `json:"tls,omitempty"` // the TLS of connections to the original address; empty for plaintext
	HTTP2 bool   `json:"-"`             // whether requests go on by HTTP/2, whatever the client speaks
	HTTP1 bool   `json:"-"`             // whether requests go on by HTTP/1.1, whatever the client speaks

	Ejects bool `json:"-"` // whether outlier detection may take endpoints out for a time

	original Endpoint // how endpoints are called, for Original
	chosen   []string // states of the endpoints that the request may name itself; nil if it names none
	panics   float64  // percentage of healthy endpoints below which all of them get requests
}

// Endpoint is one endpoint of a cluster.
type Endpoint struct {
	Address  string   `json:"address"`
	Port     uint32   `json:"port"`
	Locality string   `json:"locality,omitempty"`
	Health   string   `json:"health,omitempty"` // empty if healthy
	Priority uint32   `json:"priority,omitempty"`
	TLS      string   `json:"tls,omitempty"`   // empty for plaintext
	Lacks    []string `json:"lacks,omitempty"` // secrets for TLS that the proxy was not sent: connections fail
	Names    []Name   `json:"-"`               // of which the certificate must have one; empty if any will do
	Files    []string `json:"-"`               // files that TLS needs in the container of the proxy
	PROXY    bool     `json:"proxy,omitempty"` // whether connections begin with a header of the PROXY protocol
	SNI      string   `json:"-"`
	ALPN     []string `json:"-"`
}

// pass records where the route forwards requests.
func (x *stream) pass(r *routev3.RouteAction) error {
	missing := 503
	switch r.GetClusterNotFoundResponseCode() {
	case routev3.RouteAction_NOT_FOUND:
		missing = 404
	case routev3.RouteAction_INTERNAL_SERVER_ERROR:
		missing = 500
	}
	x.Timeout = r.GetTimeout() == nil || r.GetTimeout().AsDuration() > 0 || r.GetRetryPolicy().GetPerTryTimeout().AsDuration() > 0
	if name := r.GetClusterHeader(); name != "" {
		x.depends("the header %s of the request names the cluster", name)
		return nil
	}
	if r.GetClusterSpecifierPlugin() != "" || r.GetInlineClusterSpecifierPlugin() != nil {
		x.depends("a plugin of the route names the cluster, which is not evaluated")
		return nil
	}
	return targets(x.Answer, x.config, x.clusters(), missing)
}

// tcpProxy records where a connection is forwarded.
func tcpProxy(x *stream, f filter) (bool, error) {
	t := &tcpv3.TcpProxy{}
	if err := f.config.UnmarshalTo(t); err != nil {
		return false, err
	}
	if tunnel := t.GetTunnelingConfig(); tunnel != nil {
		x.depends("the connection goes through a tunnel: what answers there must take %s to %s, and lead there", tunnel.GetHostname(),
			cmp.Or(tunnel.GetPostPath(), "CONNECT"))
		x.Forwarded = Request{Authority: tunnel.GetHostname(), Host: x.request.Host, Address: x.request.Address, Port: x.request.Port,
			Method: "CONNECT", Path: "/", Now: x.request.Now}
		if tunnel.GetUsePost() {
			x.Forwarded.Method, x.Forwarded.Path = "POST", cmp.Or(tunnel.GetPostPath(), "/")
		}
	}
	return false, targets(x.Answer, x.config, clustersOf(t), 0)
}

// clustersOf returns the clusters that a filter for connections may choose.
func clustersOf(t *tcpv3.TcpProxy) []choice {
	if t.GetCluster() != "" {
		return []choice{{name: t.GetCluster(), weight: 1}}
	}
	return withWeight(lists.Map(t.GetWeightedClusters().GetClusters(), func(w *tcpv3.TcpProxy_WeightedCluster_ClusterWeight) choice {
		return choice{name: w.GetName(), weight: w.GetWeight()}
	}))
}

// targets records the clusters that may be chosen. missing is the status of requests for a cluster that is not there,
// or 0 for connections.
func targets(a *Answer, c Config, choices []choice, missing int) error {
	total, weights := uint32(0), map[string]uint32{}
	for _, x := range choices {
		total += x.weight
		weights[x.name] += x.weight
	}
	served := false
	var failures []Dependency // of clusters to which requests are not passed
	fail := func(t Target, cause accesslog.Cause, status int, reason string) {
		if len(failures) == 0 {
			a.end(cause, status, "%s", reason)
		}
		fate := "get status " + strconv.Itoa(status)
		if status == 0 {
			fate = "are closed"
		}
		failures = append(failures, Dependency{Text: fmt.Sprintf("%s %s: %s", share(t), fate, reason), Cause: cause, Status: status})
	}
	for _, name := range lists.Unique(lists.Map(choices, func(x choice) string { return x.name })) {
		cluster, err := named[clusterv3.Cluster](c[envoy.ClusterType], name)
		if err != nil {
			return err
		}
		t := Target{Cluster: name, Share: 100 * float64(weights[name]) / float64(max(total, 1))}
		if cluster == nil {
			a.step(Step{What: "cluster", Name: name, Reason: "it is not there: " + absence(c, name), Details: []string{share(t)}})
			a.Targets = append(a.Targets, t)
			fail(t, accesslog.NoCluster, missing, "cluster "+name+" is not there")
			continue
		}
		var o offer
		if a.manager != nil {
			o = offerOf(a.manager, cluster)
		}
		s, err := t.fill(c, cluster, o)
		if err != nil {
			return err
		}
		may, must := speaksHTTP2(cluster)
		t.HTTP1, t.HTTP2 = a.HTTP && !may, a.HTTP && must
		if a.chooses {
			t.chosen = choosable(cluster)
			s.Details = append(s.Details, "the request itself names one of its endpoints")
		}
		s.Details = append([]string{share(t)}, s.Details...)
		a.step(s)
		a.Targets = append(a.Targets, t)
		c.doubtCluster(a, cluster)
		served = served || t.serves()
		lacks := t.unready()
		for _, secret := range lacks {
			a.step(Step{What: stepSecret, Name: secret, Reason: "the proxy was not sent it"})
		}
		if t.serves() {
			continue
		}
		status := 503
		if missing == 0 {
			status = 0
		}
		if len(lacks) > 0 {
			fail(t, accesslog.TLS, status, "TLS to cluster "+name+" fails: "+lacking(lacks))
		} else {
			fail(t, accesslog.NoEndpoint, status, "cluster "+name+" has no endpoint that takes requests")
		}
	}
	if served { // some of the requests are forwarded
		a.Cause, a.Status, a.Reason = accesslog.Unknown, 200, ""
		for _, f := range failures {
			a.dependsOn(f.Cause, f.Status, "%s", f.Text)
		}
	}
	return nil
}

func share(t Target) string {
	return strconv.FormatFloat(t.Share, 'f', -1, 64) + " % of such requests"
}

// absence says why a cluster may be missing.
func absence(c Config, name string) string {
	missing, ok := names.ParseCluster(name)
	if !ok {
		return "the service does not exist, or the proxy may not see it"
	}
	var ports []int
	for _, r := range c[envoy.ClusterType] {
		switch there, ok := names.ParseCluster(r.Name); {
		case !ok || there.Host != missing.Host:
		case there.Port == missing.Port && there.Subset == "":
			return "no DestinationRule in force for the proxy defines subset " + missing.Subset + " of " + missing.Host
		case there.Subset == "":
			ports = append(ports, int(there.Port))
		}
	}
	if slices.Sort(ports); len(ports) > 0 {
		return fmt.Sprintf("%s has no port %d: it has %s. A destination without a port has the port that was called", missing.Host, missing.Port,
			strings.Join(lists.Map(slices.Compact(ports), strconv.Itoa), ", "))
	}
	return "the service does not exist, or the proxy may not see it"
}

// takes reports whether Envoy takes an endpoint to be healthy.
func (e Endpoint) takes() bool { return e.Health == "" || e.Health == "degraded" }

// Used returns the endpoints that get requests as long as no endpoint changes its health. Envoy sends requests to a
// priority in proportion to its healthy endpoints times 1.4, and the rest to the next one. If so few endpoints of a
// priority are healthy that the cluster panics, all of them get requests. A request that names its endpoint may go to
// any that is in one of some states.
func (t *Target) Used() (list []Endpoint) {
	if t.chosen != nil {
		return lists.Filter(t.Endpoints, func(e Endpoint) bool { return slices.Contains(t.chosen, cmp.Or(e.Health, "healthy")) })
	}
	all, healthy := map[uint32]float64{}, map[uint32]float64{}
	for _, e := range t.Endpoints {
		all[e.Priority]++
		if e.takes() {
			healthy[e.Priority]++
		}
	}
	const overprovisioning = 1.4
	left := 1.0
	for _, p := range slices.Sorted(maps.Keys(all)) {
		part := healthy[p] / all[p]
		panics := part*100 < t.panics
		if left > 0 && (part > 0 || panics) {
			for _, e := range t.Endpoints {
				if e.Priority == p && (e.takes() || panics) {
					list = append(list, e)
				}
			}
			left -= overprovisioning * part
		}
	}
	return list
}

// serves reports whether an endpoint of the target can get requests.
func (t *Target) serves() bool {
	return t.Original && len(t.original.Lacks) == 0 || slices.ContainsFunc(t.Used(), func(e Endpoint) bool { return len(e.Lacks) == 0 })
}

// unready returns the missing secrets without which no connection to any endpoint succeeds.
func (t *Target) unready() []string {
	lacks := t.original.Lacks
	for _, e := range t.Used() {
		if len(e.Lacks) == 0 {
			return nil
		}
		lacks = e.Lacks
	}
	return lacks
}

// fill fills in the properties of a cluster.
func (t *Target) fill(c Config, cluster *clusterv3.Cluster, o offer) (Step, error) {
	t.Origin, t.panics = Origin{Path: configOf(cluster.GetMetadata())}, cluster.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue()
	t.Ejects = cluster.GetOutlierDetection() != nil
	s := Step{What: "cluster", Name: cluster.GetName(), Origin: t.Origin}
	if name, ok := names.ParseCluster(cluster.GetName()); ok && name.Subset != "" {
		t.Subset = name.Subset
		s.Details = append(s.Details, "subset "+name.Subset)
	}
	assignment := cluster.GetLoadAssignment()
	switch cluster.GetType() {
	case clusterv3.Cluster_ORIGINAL_DST:
		t.Original = true
		s.Details = append(s.Details, "it passes connections on to their original destination")
		if t.Subset != "" {
			s.Details = append(s.Details, "load balancing and the labels of its subset have no effect")
		}
	case clusterv3.Cluster_EDS:
		var err error
		if assignment, err = named[endpointv3.ClusterLoadAssignment](c[envoy.EndpointType],
			cmp.Or(cluster.GetEdsClusterConfig().GetServiceName(), cluster.GetName())); err != nil {
			return s, err
		}
	}
	if cluster.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy" {
		t.Original = true
		s.Details = append(s.Details, "it resolves the host that is called")
	}
	if t.Original {
		if t.original.secure(c, cluster, nil, o); t.original.TLS != "" {
			t.TLS = t.original.TLS
			s.Details = append(s.Details, "it calls by "+t.TLS)
		}
	}
	for _, group := range assignment.GetEndpoints() {
		l := group.GetLocality()
		locality := strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
		for _, e := range group.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			x := Endpoint{Address: at.GetAddress(), Port: at.GetPortValue(), Locality: locality, Priority: group.GetPriority()}
			if pipe := e.GetEndpoint().GetAddress().GetPipe().GetPath(); pipe != "" {
				x.Address = pipe
			}
			if h := e.GetHealthStatus(); h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				x.Health = strings.ToLower(h.String())
			}
			x.secure(c, cluster, e, o)
			t.Endpoints = append(t.Endpoints, x)
		}
	}
	if len(t.Endpoints) == 0 && !t.Original {
		s.Details = append(s.Details, "it has no endpoints")
	}
	for _, e := range t.Endpoints {
		s.Details = append(s.Details, e.String())
	}
	return s, nil
}

// At returns how a target calls an address, if the connection goes to its original address.
func (t *Target) At(address string, port uint32) Endpoint {
	e := t.original
	e.Address, e.Port = address, port
	return e
}

// CallBy sets how endpoints are called, for Original.
func (t *Target) CallBy(e Endpoint) { t.original = e }

// speaksHTTP2 reports whether requests may go to the endpoints of a cluster by HTTP/2, and whether all do.
func speaksHTTP2(cluster *clusterv3.Cluster) (may, must bool) {
	options := &httpv3.HttpProtocolOptions{}
	if config := cluster.GetTypedExtensionProtocolOptions()[httpOptions]; config == nil || config.UnmarshalTo(options) != nil {
		return false, false
	}
	must = options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
	return must || options.GetUseDownstreamProtocolConfig() != nil || options.GetAutoConfig() != nil, must
}

// choosable returns the states of the endpoints of a cluster that a request may name.
func choosable(cluster *clusterv3.Cluster) []string {
	allowed := cluster.GetCommonLbConfig().GetOverrideHostStatus()
	if allowed == nil {
		return []string{"healthy", "degraded"}
	}
	list := lists.Map(allowed.GetStatuses(), func(h corev3.HealthStatus) string { return strings.ToLower(h.String()) })
	if slices.Contains(list, "unknown") {
		list = append(list, "healthy")
	}
	return list
}

// String describes an endpoint on one line.
func (e Endpoint) String() string {
	text := e.Address
	if e.Port != 0 {
		text = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	}
	text += ", " + cmp.Or(e.Health, "healthy")
	if e.Locality != "" {
		text += ", in " + e.Locality
	}
	if e.Priority > 0 {
		text += fmt.Sprintf(", priority %d", e.Priority)
	}
	return text + ", " + cmp.Or(e.TLS, "plaintext")
}
