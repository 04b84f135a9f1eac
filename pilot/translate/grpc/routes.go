package grpc

import (
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Routes makes the routes of services. Safe for concurrent use.
type Routes struct {
	cache  *engine.Cache
	envoys *rds.Routes
	routes *envoy.MemoTable[routeKey]
}

// NewRoutes returns Routes that are made from the routes of Envoys.
func NewRoutes(m *envoy.Memo, c *engine.Cache, envoys *rds.Routes) *Routes {
	return &Routes{cache: c, envoys: envoys, routes: envoy.NewMemoTable(m, buildRoute)}
}

// routeKey is the whole input of the routes of a service.
type routeKey struct {
	name   string
	envoys *envoy.Resource // virtual host for an Envoy
}

// Get returns the route configurations of a list of names. An undefined name has an empty one.
func (m *Routes) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	s, err := byName(m.cache, v, client(envoy.RouteType, c), list, func(name string) *envoy.Resource {
		if n, ok := names.ParseCluster(name); ok && n.Direction == names.Outbound && n.Subset == "" && !n.SNIDNAT {
			if host := m.envoys.ServiceHost(v, c.Client.Value(), n.Host, n.Port); host != nil {
				return m.routes.Get(routeKey{name, host})
			}
		}
		return envoy.NewResource(name, &routev3.RouteConfiguration{Name: name}) // not cached, because clients choose the names
	})
	return envoy.Union{Shared: s}, err
}

func buildRoute(k routeKey) *envoy.Resource {
	var full routev3.VirtualHost
	read(k.envoys.Value(), &full)
	host := &routev3.VirtualHost{Name: full.Name, Domains: full.Domains}
	for _, r := range full.Routes {
		if !needsToken(r.Match) {
			host.Routes = append(host.Routes, route(r))
		}
	}
	return envoy.NewResource(k.name, &routev3.RouteConfiguration{Name: k.name, VirtualHosts: []*routev3.VirtualHost{host}})
}

// route returns the part of a route that gRPC reads.
func route(full *routev3.Route) *routev3.Route {
	r := &routev3.Route{Name: full.Name, Match: match(full.Match), Action: full.Action,
		TypedPerFilterConfig: faults(full.TypedPerFilterConfig)}
	a := full.GetRoute()
	if a == nil {
		return r
	}
	forward := &routev3.RouteAction{ClusterSpecifier: a.ClusterSpecifier, HashPolicy: a.HashPolicy, RetryPolicy: retries(a.RetryPolicy)}
	if t := a.Timeout; t.AsDuration() > 0 {
		forward.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: t}
	}
	r.Action = &routev3.Route_Route{Route: forward}
	if split := a.GetWeightedClusters(); split != nil {
		clusters := &routev3.WeightedCluster{}
		for _, c := range split.Clusters {
			if c.GetWeight().GetValue() > 0 {
				clusters.Clusters = append(clusters.Clusters, &routev3.WeightedCluster_ClusterWeight{
					Name: c.Name, Weight: c.Weight, TypedPerFilterConfig: faults(c.TypedPerFilterConfig),
				})
			}
		}
		if forward.ClusterSpecifier = (&routev3.RouteAction_WeightedClusters{WeightedClusters: clusters}); len(clusters.Clusters) == 0 {
			r.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 503}} // the call fails
		}
	}
	return r
}

// needsToken reports whether a match requires a claim of a token. Such a match matches no call of gRPC.
func needsToken(m *routev3.RouteMatch) bool {
	return slices.ContainsFunc(m.DynamicMetadata, func(claim *matcherv3.MetadataMatcher) bool { return !claim.Invert })
}

// match returns a match without conditions that every call of gRPC meets, in forms that gRPC knows.
func match(full *routev3.RouteMatch) *routev3.RouteMatch {
	m := &routev3.RouteMatch{PathSpecifier: full.PathSpecifier, CaseSensitive: full.CaseSensitive,
		RuntimeFraction: full.RuntimeFraction, QueryParameters: full.QueryParameters}
	if p, ok := full.PathSpecifier.(*routev3.RouteMatch_PathSeparatedPrefix); ok {
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
			Regex: caseOf(full) + regexp.QuoteMeta(strings.TrimSuffix(p.PathSeparatedPrefix, "/")) + "(?:/.*)?",
		}}
	}
	for _, h := range full.Headers {
		if h.Name != ":method" || h.InvertMatch || h.GetStringMatch().GetExact() != "POST" { // every call is a POST
			m.Headers = append(m.Headers, h)
		}
	}
	return m
}

// caseOf returns the prefix for the expression of a path that makes it ignore case.
func caseOf(m *routev3.RouteMatch) string {
	if c := m.GetCaseSensitive(); c != nil && !c.Value {
		return "(?i)"
	}
	return ""
}

// faultFilter is the name of the filter that injects faults, in listeners and in the settings of routes.
const faultFilter = "envoy.filters.http.fault"

// faults returns the settings of the only filter of clients.
func faults(all map[string]*anypb.Any) map[string]*anypb.Any {
	if all[faultFilter] == nil {
		return nil
	}
	return map[string]*anypb.Any{faultFilter: all[faultFilter]}
}

// statuses are the retry conditions that gRPC knows.
var statuses = []string{"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}

// retries returns the part of a retry policy that gRPC reads, or nil if it retries nothing.
func retries(p *routev3.RetryPolicy) *routev3.RetryPolicy {
	var on []string
	for s := range strings.SplitSeq(p.GetRetryOn(), ",") {
		if s = strings.ToLower(strings.TrimSpace(s)); slices.Contains(statuses, s) {
			on = append(on, s)
		}
	}
	if n := p.GetNumRetries(); len(on) == 0 || n != nil && n.Value == 0 {
		return nil
	}
	return &routev3.RetryPolicy{RetryOn: strings.Join(on, ","), NumRetries: p.NumRetries, RetryBackOff: p.RetryBackOff}
}
