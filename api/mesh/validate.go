package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func (d *document) wrong(path, message, fix string) {
	d.report(diag.Error, "InvalidValue", path, d.nearest(path), message, fix)
}

// nearest returns the node at a path, or the closest enclosing node in the document.
func (d *document) nearest(path string) *yamlv3.Node {
	for {
		if n := d.at[path]; n != nil {
			return n
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return nil
		}
		path = path[:i]
	}
}

func (d *document) checkConfig(c *Config) {
	d.port("proxyListenPort", c.GetProxyListenPort(), 1)
	d.port("proxyInboundListenPort", c.GetProxyInboundListenPort(), 1)
	d.port("proxyHttpPort", c.GetProxyHttpPort(), 0)
	d.port("defaultConfig.proxyAdminPort", c.GetDefaultConfig().GetProxyAdminPort(), 1)
	d.port("defaultConfig.statusPort", c.GetDefaultConfig().GetStatusPort(), 0)
	if c.GetProxyListenPort() == c.GetProxyInboundListenPort() {
		d.wrong("proxyInboundListenPort", "inbound and outbound traffic cannot share a port", "choose another port than proxyListenPort")
	}

	d.duration("connectTimeout", c.MeshConfig.GetConnectTimeout(), time.Millisecond)
	d.duration("protocolDetectionTimeout", c.GetProtocolDetectionTimeout(), 0)
	d.duration("dnsRefreshRate", c.GetDnsRefreshRate(), time.Millisecond)
	d.duration("hboneIdleTimeout", c.GetHboneIdleTimeout(), 0)
	d.duration("defaultConfig.drainDuration", c.GetDefaultConfig().GetDrainDuration(), time.Second)
	d.duration("defaultConfig.terminationDrainDuration", c.GetDefaultConfig().GetTerminationDrainDuration(), 0)

	d.trustDomain("trustDomain", c.GetTrustDomain())
	for i, a := range c.GetTrustDomainAliases() {
		d.trustDomain(fmt.Sprintf("trustDomainAliases[%d]", i), a)
	}
	if !label(c.GetRootNamespace()) {
		d.wrong("rootNamespace", fmt.Sprintf("%q is not the name of a namespace", c.GetRootNamespace()), "write a name such as istio-system")
	}
	for i, written := range c.GetDiscoverySelectors() {
		d.selector(fmt.Sprintf("discoverySelectors[%d]", i), written)
	}
	for i, p := range c.GetServiceEntryVisibility().GetPolicies() {
		for j, r := range p.GetMatchingRules() {
			path := fmt.Sprintf("serviceEntryVisibility.policies[%d].matchingRules[%d]", i, j)
			if r.GetMatcher() == nil {
				d.wrong(path, "the rule does not say which namespaces it is for", "write a namespaceSelector")
				continue
			}
			d.selector(path+".namespaceSelector", r.GetNamespaceSelector())
		}
	}
	d.exportTo("defaultServiceExportTo", c.GetDefaultServiceExportTo())
	d.exportTo("defaultVirtualServiceExportTo", c.GetDefaultVirtualServiceExportTo())
	d.exportTo("defaultDestinationRuleExportTo", c.GetDefaultDestinationRuleExportTo())
	if t := c.GetDefaultConfig().GetTracing(); t != nil && !(t.GetSampling() >= 0 && t.GetSampling() <= 100) {
		d.wrong("defaultConfig.tracing.sampling", fmt.Sprintf("%v is not a percentage", t.GetSampling()), "write a number from 0 to 100")
	}
	checkSettings(c.GetDefaultConfig(), func(path, message, fix string) { d.wrong("defaultConfig."+path, message, fix) })
	d.locality("localityLbSetting", c.GetLocalityLbSetting())
	for i, f := range c.GetZoneAwareLbSetting().GetFailover() {
		d.regions(fmt.Sprintf("zoneAwareLbSetting.failover[%d]", i), f.GetFrom(), f.GetTo())
	}
	if len(c.GetMeshMTLS().GetEcdhCurves()) > 0 {
		const path = "meshMTLS.ecdhCurves"
		d.report(diag.Warning, "Doubtful", path, d.nearest(path),
			"the curves are in force here, and istiod refuses a mesh configuration that has them", "remove them where istiod reads the text too")
	}
	d.inboundRetries(c.GetDefaultInboundHttpRetryPolicy())
	d.providers(c)
}

// inboundRetries checks the retries of requests that sidecars pass on to their workload.
func (d *document) inboundRetries(r *networkingv1alpha3.HTTPRetry) {
	const path = "defaultInboundHttpRetryPolicy"
	if r.GetAttempts() < 0 {
		d.wrong(path+".attempts", fmt.Sprintf("%d is less than no attempt", r.GetAttempts()), "write 0 or more; 0 disables retries")
	}
	if r != nil && r.Attempts == 0 && (r.RetryOn != "" || r.Backoff != nil) {
		d.report(diag.Warning, "Doubtful", path, d.nearest(path), "there are no retries, as attempts is 0, but they are configured",
			"set attempts to 1 or more, or remove the rest")
	}
	d.duration(path+".backoff", r.GetBackoff(), time.Millisecond)
	for condition := range strings.SplitSeq(r.GetRetryOn(), ",") {
		condition = strings.TrimSpace(condition)
		if code, err := strconv.Atoi(condition); err == nil && code >= 100 && code <= 599 {
			continue
		}
		if condition != "" && !slices.Contains(names.RetryConditions(), condition) {
			d.wrong(path+".retryOn", fmt.Sprintf("unknown retry condition %q", condition), diag.UnknownName(condition, names.RetryConditions()))
		}
	}
}

// selector checks a selector of namespaces.
func (d *document) selector(path string, written *meshv1alpha1.LabelSelector) {
	if _, err := namespaceSelector(written); err != nil {
		const fix = "write a label, or an expression with one of the operators In, NotIn, Exists and DoesNotExist"
		d.report(diag.Error, "InvalidSelector", path, d.nearest(path), err.Error(), fix)
	}
}

// locality checks the locality preferences of endpoints by istiod's rules.
func (d *document) locality(path string, l *networkingv1alpha3.LocalityLoadBalancerSetting) {
	if len(l.GetDistribute()) > 0 && len(l.GetFailover()) > 0 {
		d.wrong(path, "distribute and failover cannot both be set", "remove one of the two")
	}
	for i, share := range l.GetDistribute() {
		where, sum := fmt.Sprintf("%s.distribute[%d].to", path, i), uint64(0)
		for _, to := range slices.Sorted(maps.Keys(share.GetTo())) {
			if w := share.To[to]; w == 0 || w > 100 {
				d.wrong(where+"["+to+"]", fmt.Sprintf("%d is not a share", w), "write a number from 1 to 100")
			}
			sum += uint64(share.To[to])
		}
		if sum != 100 {
			d.wrong(where, fmt.Sprintf("the shares add up to %d", sum), "write shares that add up to 100")
		}
	}
	for i, f := range l.GetFailover() {
		d.regions(fmt.Sprintf("%s.failover[%d]", path, i), f.GetFrom(), f.GetTo())
	}
	for i, name := range l.GetFailoverPriority() {
		switch name {
		case names.LabelRegion, names.LabelZone, names.LabelSubzone:
			if len(l.GetFailover()) > 0 {
				d.wrong(fmt.Sprintf("%s.failoverPriority[%d]", path, i), "failover sorts endpoints by place already", "remove it, or failover")
			}
		}
	}
}

// regions checks the two regions of a failover.
func (d *document) regions(path, from, to string) {
	switch {
	case from == to:
		d.wrong(path, "a region cannot stand in for itself", "name two regions")
	case strings.ContainsAny(from+to, "/*"):
		d.wrong(path, fmt.Sprintf("%q or %q is not a region", from, to), "write regions, without zones and wildcards")
	}
}

// providerPort warns of a provider whose service is called at a port that does not exist. The provider stays, because
// what names it must not be open without it.
func (d *document) providerPort(path string, p *meshv1alpha1.MeshConfig_ExtensionProvider) {
	m := p.ProtoReflect()
	which := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
	to, ok := m.Get(which).Message().Interface().(interface {
		GetService() string
		GetPort() uint32
	})
	mistyped := slices.ContainsFunc(d.findings, func(f diag.Diagnostic) bool { return strings.HasPrefix(f.Field, path+".") })
	if ok && !mistyped && (to.GetPort() == 0 || to.GetPort() > 65535) {
		where := path + "." + which.JSONName() + ".port"
		d.report(diag.Warning, "InvalidValue", where, d.nearest(where),
			fmt.Sprintf("%d is not a port: nothing reaches provider %q", to.GetPort(), p.GetName()), "write a number from 1 to 65535")
	}
}

func (d *document) providers(c *Config) {
	var all []string
	for i, p := range c.GetExtensionProviders() {
		path := fmt.Sprintf("extensionProviders[%d]", i)
		switch {
		case p.GetName() == "":
			d.wrong(path+".name", "a provider must have a name", "name it")
		case slices.Contains(all, p.GetName()):
			d.wrong(path+".name", fmt.Sprintf("two providers are named %q", p.GetName()), "rename one of them")
		case p.GetProvider() == nil:
			d.wrong(path, fmt.Sprintf("provider %q does not say what it is", p.GetName()), "add one of its kinds, such as envoyExtAuthzGrpc")
		default:
			d.providerPort(path, p)
		}
		all = append(all, p.GetName())
	}
	check := func(path string, names []string) {
		for i, n := range names {
			if !slices.Contains(all, n) {
				where := fmt.Sprintf("%s[%d]", path, i)
				d.report(diag.Warning, "UnknownProvider", where, d.nearest(where), fmt.Sprintf("there is no extension provider %q", n),
					"define it in extensionProviders, or name one of "+strings.Join(all, ", "))
			}
		}
	}
	p := c.GetDefaultProviders()
	check("defaultProviders.tracing", p.GetTracing())
	check("defaultProviders.metrics", p.GetMetrics())
	check("defaultProviders.accessLogging", p.GetAccessLogging())
}

func (d *document) checkNetworks(n *Networks) {
	// In order of names, so that equal documents have equal findings.
	all := slices.Sorted(maps.Keys(n.GetNetworks()))
	for _, name := range all {
		net, path := n.GetNetworks()[name], "networks["+name+"]"
		for i, e := range net.GetEndpoints() {
			where := fmt.Sprintf("%s.endpoints[%d]", path, i)
			switch {
			case e.GetNe() == nil, e.GetFromCidr() == "" && e.GetFromRegistry() == "":
				d.wrong(where, "does not say which endpoints are in the network", "set fromCidr or fromRegistry")
			case e.GetFromCidr() != "":
				if _, err := netip.ParsePrefix(e.GetFromCidr()); err != nil {
					d.wrong(where+".fromCidr", fmt.Sprintf("%q is not a CIDR", e.GetFromCidr()), "write an address and a length, such as 10.0.0.0/16")
				}
			}
		}
		for i, g := range net.GetGateways() {
			where := fmt.Sprintf("%s.gateways[%d]", path, i)
			if g.GetAddress() == "" && g.GetRegistryServiceName() == "" {
				d.wrong(where, "does not say where the gateway is", "set address or registryServiceName")
			}
			d.port(where+".port", int32(min(g.GetPort(), 1<<20)), 1)
		}
	}
}

func (d *document) port(path string, port, least int32) {
	if port < least || port > 65535 {
		d.wrong(path, fmt.Sprintf("%d is not a port", port), fmt.Sprintf("write a number from %d to 65535", least))
	}
}

func (d *document) duration(path string, v *durationpb.Duration, least time.Duration) {
	if v == nil {
		return
	}
	if v.CheckValid() != nil || v.AsDuration() < least {
		d.wrong(path, fmt.Sprintf("%v is too short", v.AsDuration()), fmt.Sprintf("write at least %v", least))
	}
}

func (d *document) trustDomain(path, td string) {
	ok := td != "" && len(td) <= 255
	for i := range len(td) {
		c := td[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_')
	}
	if !ok {
		d.wrong(path, fmt.Sprintf("%.64q is not a trust domain", td),
			"use lower-case letters, digits, dots, dashes and underscores, such as cluster.local")
	}
}

func (d *document) exportTo(path string, to []string) {
	for i, e := range to {
		if e != "*" && e != "." && e != "~" && !label(e) {
			d.wrong(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q is not a namespace", e), `write *, ., ~ or the name of a namespace`)
		}
	}
}

// label reports whether s is a DNS label, RFC 1123.
func label(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }) < 0
}
