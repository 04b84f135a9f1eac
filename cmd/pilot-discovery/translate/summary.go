package translate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// printSummary writes where requests go, as a summary for people.
func printSummary(w io.Writer, all map[string][]*envoy.Resource) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 8, 3, ' ', 0)
	endpoints, err := envoy.Decode[endpointv3.ClusterLoadAssignment](all[envoy.EndpointType])
	if err != nil {
		return err
	}
	clusters, err := envoy.Decode[clusterv3.Cluster](all[envoy.ClusterType])
	if err != nil {
		return err
	}
	fmt.Fprintf(table, "CLUSTER\tTYPE\tENDPOINTS\n")
	assigned := map[string]*endpointv3.ClusterLoadAssignment{}
	for _, a := range endpoints {
		assigned[a.GetClusterName()] = a
	}
	for _, c := range clusters {
		a := c.GetLoadAssignment()
		if c.GetType() == clusterv3.Cluster_EDS {
			a = assigned[cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.GetName(), c.GetType(), endpointText(c.GetType(), a))
	}

	listeners, err := envoy.Decode[listenerv3.Listener](all[envoy.ListenerType])
	if err != nil {
		return err
	}
	_ = table.Flush() // cannot fail on a buffer
	fmt.Fprintf(table, "\nLISTENER\tADDRESS\tLEADS TO\n")
	for _, l := range listeners {
		leads, err := leadsTo(l)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", l.GetName(), addressText(l.GetAddress()), few(leads))
	}

	routes, err := envoy.Decode[routev3.RouteConfiguration](all[envoy.RouteType])
	if err != nil {
		return err
	}
	_ = table.Flush()
	fmt.Fprintf(table, "\nROUTE\tHOSTS\tREQUESTS GO TO\n")
	for _, r := range routes {
		for _, host := range r.GetVirtualHosts() {
			for i, route := range host.GetRoutes() {
				name, domains := r.GetName(), first(1, host.GetDomains())
				if i > 0 {
					name, domains = "", ""
				}
				fmt.Fprintf(table, "%s\t%s\t%s: %s\n", name, domains, matchText(route.GetMatch()), actionText(route))
			}
		}
	}
	_ = table.Flush()
	if c, l := wantCertificates(all[envoy.ClusterType]), wantCertificates(all[envoy.ListenerType]); c+l > 0 {
		fmt.Fprintf(&out, "\n%s and %s want certificates: without a cluster %s in its bootstrap the proxy never starts.\n",
			report.Amount(c, "cluster"), report.Amount(l, "listener"), names.SDSCluster)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// wantCertificates returns how many resources need certificates.
func wantCertificates(list []*envoy.Resource) int {
	n := 0
	for _, r := range list {
		if r.WantsCertificates() {
			n++
		}
	}
	return n
}

// few returns the first three of a list as text, and how many more there are.
func few(list []string) string { return first(3, list) }

// first returns the first n of a list as text, and how many more there are.
func first(n int, list []string) string {
	if len(list) == 0 {
		return "-"
	}
	text := strings.Join(list[:min(n, len(list))], ", ")
	if more := len(list) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func endpointText(kind clusterv3.Cluster_DiscoveryType, a *endpointv3.ClusterLoadAssignment) string {
	if kind == clusterv3.Cluster_ORIGINAL_DST {
		return "where the connection was meant to go"
	}
	var list []string
	for _, group := range a.GetEndpoints() {
		for _, e := range group.GetLbEndpoints() {
			text := addressText(e.GetEndpoint().GetAddress())
			if h := e.GetHealthStatus(); h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				text += " " + strings.ToLower(h.String())
			}
			list = append(list, text)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return few(list)
}

func addressText(a *corev3.Address) string {
	switch {
	case a.GetPipe() != nil:
		return a.GetPipe().GetPath()
	case a.GetSocketAddress() != nil:
		return net.JoinHostPort(a.GetSocketAddress().GetAddress(), strconv.FormatUint(uint64(a.GetSocketAddress().GetPortValue()), 10))
	case a.GetEnvoyInternalAddress() != nil:
		return a.GetEnvoyInternalAddress().GetServerListenerName()
	}
	return "-"
}

// leadsTo returns the names of the routes and clusters that the chains of a listener refer to, each once.
func leadsTo(l *listenerv3.Listener) ([]string, error) {
	var list []string
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	for _, chain := range chains {
		for _, f := range chain.GetFilters() {
			h, t := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
			switch config := f.GetTypedConfig(); {
			case config.MessageIs(h):
				if err := config.UnmarshalTo(h); err != nil {
					return nil, fmt.Errorf("read %s: %w", l.GetName(), err)
				}
				if h.GetRds() != nil {
					list = append(list, "route "+h.GetRds().GetRouteConfigName())
				} else {
					list = append(list, routesTo(h.GetRouteConfig())...)
				}
			case config.MessageIs(t):
				if err := config.UnmarshalTo(t); err != nil {
					return nil, fmt.Errorf("read %s: %w", l.GetName(), err)
				}
				if t.GetCluster() != "" {
					list = append(list, t.GetCluster())
				}
				for _, c := range t.GetWeightedClusters().GetClusters() {
					list = append(list, fmt.Sprintf("%s weight %d", c.GetName(), c.GetWeight()))
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// routesTo returns where the routes inside a listener lead.
func routesTo(r *routev3.RouteConfiguration) []string {
	var list []string
	for _, host := range r.GetVirtualHosts() {
		for _, route := range host.GetRoutes() {
			list = append(list, actionText(route))
		}
	}
	return list
}

func matchText(m *routev3.RouteMatch) string {
	var text string
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		text = p.Prefix + "*"
	case *routev3.RouteMatch_PathSeparatedPrefix:
		text = p.PathSeparatedPrefix + "/*"
	case *routev3.RouteMatch_Path:
		text = p.Path
	case *routev3.RouteMatch_SafeRegex:
		text = "~" + p.SafeRegex.GetRegex()
	default:
		text = "other"
	}
	for _, h := range m.GetHeaders() {
		text += " header " + h.GetName()
	}
	for _, q := range m.GetQueryParameters() {
		text += " query " + q.GetName()
	}
	return text
}

func actionText(r *routev3.Route) string {
	switch {
	case r.GetRedirect() != nil:
		return "redirect"
	case r.GetDirectResponse() != nil:
		return fmt.Sprintf("status %d", r.GetDirectResponse().GetStatus())
	case r.GetRoute() == nil:
		return "nothing"
	}
	var list []string
	for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
		list = append(list, fmt.Sprintf("%s weight %d", c.GetName(), c.GetWeight().GetValue()))
	}
	if len(list) > 0 {
		return few(list)
	}
	if h := r.GetRoute().GetClusterHeader(); h != "" {
		return "the cluster that header " + h + " names"
	}
	return r.GetRoute().GetCluster()
}
