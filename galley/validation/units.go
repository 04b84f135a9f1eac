package validation

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// unit is a part of an object that restricts something, and that must not be left out because a field of it is wrong.
// The fields of free can be left out by themselves. Any other fault closes the unit as a whole. An unknown field that
// has almost the name of a unit, which is missing, is taken for it, as one that cannot be read.
type unit struct {
	path  string   // a pattern, see matches
	free  []string // patterns below the unit; a pattern that ends in ".**" is for a value and all values within it
	exact bool     // whether an unknown field may be the misspelt name of a field that restricts

	// close replaces the last value of the chain by a value that is at least as strict, whatever the wrong field may
	// mean, and returns true. It returns false if the value can be left out. A nil close is one that always returns
	// false. field is the name of the unit's field at fault.
	close func(s *salvage, chain []step, field string) bool
}

// unusable is the name of no host, identity or issuer.
const unusable = "unusable.invalid"

// noSocket is a socket that no workload has. Connections that are forwarded to it are refused.
const noSocket = "unix:///dev/null/unusable"

// units returns the units of a kind. They decide what is in force of an object with faults:
//
//   - The security kinds, see api/kinds.Kind.Security: a rule that cannot be read admits no request, or refuses all.
//   - DestinationRule: without TLS settings connections would be plaintext. Settings that trust no server replace
//     settings that cannot be read.
//   - Sidecar: it restricts which hosts are visible and where connections may go. If no ingress listener can be read,
//     a listener on the proxy's own port replaces them, because without any the ports of Services would be served.
//   - VirtualService: a route may answer requests itself, and if it is missing the next route takes them.
//   - EnvoyFilter: a patch may add a filter that refuses requests.
//   - Gateway: a server may refuse clients without a certificate, or redirect them.
//   - ServiceEntry: it may hide a host, and name the identities of servers.
//   - WasmPlugin and TrafficExtension: their code may refuse requests. A script that does not load refuses them in the
//     phases AUTHN and AUTHZ alone.
//   - Telemetry, ProxyConfig, WorkloadEntry and WorkloadGroup restrict nothing: each wrong field is left out by itself.
//
// A security object whose selector cannot be read is for all workloads of its namespace, and is as strict as its kind
// can be. Any other object whose selector cannot be read is for no workload, as in istiod.
//
// An API server refuses objects of Kubernetes' own kinds if they have errors. Only BackendTLSPolicy has units, since
// without it connections would be plaintext. A Gateway, a route or an Ingress of those kinds admits nothing if it is
// missing.
func units(k *kinds.Kind) []unit { return unitsOf()[k] }

// Restricts reports whether objects of a kind may close something that is open without them.
func Restricts(k *kinds.Kind) bool {
	return len(units(k)) > 0 && k != kinds.Telemetry && k != kinds.ProxyConfig
}

var unitsOf = sync.OnceValue(func() map[*kinds.Kind][]unit {
	left := func(paths ...string) (list []unit) {
		return lists.Map(paths, func(p string) unit { return unit{path: p, close: leaveOut} })
	}
	selectors := left("spec.selector", "spec.targetRef", "spec.targetRefs")
	return map[*kinds.Kind][]unit{
		kinds.AuthorizationPolicy: {
			{path: "spec", close: closePolicy},
			{path: "spec.rules.[]", close: closeRule},
			{path: "spec.*", close: ofSpec(closePolicy)},
		},
		kinds.PeerAuthentication: {
			{path: "spec", close: closePeers},
			{path: "spec.mtls", close: strictMTLS},
			{path: "spec.portLevelMtls", close: closePorts},
			{path: "spec.portLevelMtls.*", close: closePort},
			{path: "spec.*", close: ofSpec(closePeers)},
		},
		kinds.RequestAuthentication: {
			{path: "spec", close: closeAuthentication},
			{path: "spec.jwtRules.[]", close: closeJWTRule, free: []string{
				"audiences.[]", "fromHeaders.[]", "fromParams.[]", "fromCookies.[]", "spaceDelimitedClaims.**", "timeout", "forwardOriginalToken",
				"outputPayloadToHeader", "outputClaimToHeaders.[].**",
			}},
			{path: "spec.jwtRules.[].presence", close: requireToken},
			{path: "spec.jwtRules.[].outputClaimToHeaders.[]", close: closeClaim},
			{path: "spec.*", close: ofSpec(closeAuthentication)},
		},
		kinds.DestinationRule: destinationRuleUnits(),
		kinds.Sidecar: append(left("spec.workloadSelector"), []unit{
			{path: "spec", free: []string{"inboundConnectionPool.**"}, close: leaveOut},
			{path: "spec.outboundTrafficPolicy", exact: true, close: replaceBy(`{"mode": "REGISTRY_ONLY"}`)},
			{path: "spec.egress", close: replaceBy(`[{"hosts": ["~/*"]}]`)},
			{path: "spec.egress.[].hosts.[]", close: closeEgressHost},
			{path: "spec.egress.[]", free: []string{"captureMode", "port.name", "port.protocol", "port.targetPort"}, close: closeEgress},
			{path: "spec.ingress", close: replaceBy(`[{"port": {"number": 15001, "name": "unusable", "protocol": "TCP"}, "defaultEndpoint": "` +
				noSocket + `"}]`)},
			{path: "spec.ingress.[]", free: []string{"connectionPool.**", "captureMode", "port.name", "port.targetPort"}, close: closeIngress},
			{path: "spec.ingress.[].port.protocol", close: closeProtocol},
		}...),
		kinds.VirtualService: virtualServiceUnits(),
		kinds.EnvoyFilter: append(left("spec.workloadSelector", "spec.targetRefs"), []unit{
			{path: "spec", free: []string{"priority", "configPatches"}, close: leaveOut},
			{path: "spec.configPatches.[]", close: func(s *salvage, _ []step, _ string) bool { s.patched = true; return false }},
			{path: "spec.configPatches.[].match.proxy.proxyVersion", close: patchEachVersion},
		}...),
		kinds.Gateway: append(left("spec.selector"), []unit{
			{path: "spec", close: leaveOut},
			{path: "spec.servers.[]", free: []string{"name", "defaultEndpoint", "hosts.[]", "port.targetPort"}, close: closeServer},
			{path: "spec.servers.[].port.name", close: namePort},
			{path: "spec.servers.[].tls", exact: true, close: closeServerTLS},
		}...),
		kinds.ServiceEntry: {
			{path: "spec", free: []string{"ports.[]", "ports", "ports.[].protocol"}, close: closeEntry},
			{path: "spec.addresses", close: closeAddresses},
			{path: "spec.addresses.[]"},
			{path: "spec.hosts", close: closeHosts},
			{path: "spec.hosts.[]"},
			{path: "spec.ports.[].name", close: namePort},
			{path: "spec.exportTo", close: exportNowhere},
			{path: "spec.exportTo.[]"},
			{path: "spec.subjectAltNames", close: replaceBy(`["` + unusable + `"]`)},
			{path: "spec.subjectAltNames.[]"},
			{path: "spec.endpoints", close: closeEndpoints},
			{path: "spec.endpoints.[]"},
		},
		kinds.WasmPlugin: append(slices.Clone(selectors), []unit{
			{path: "spec", free: []string{"phase", "priority", "match", "type", "failStrategy", "imagePullPolicy", "pluginName"}, close: closeWasm},
			{path: "spec.match.[]", close: applyToAll},
		}...),
		kinds.TrafficExtension: append(slices.Clone(selectors), []unit{
			{path: "spec", free: []string{"phase", "priority", "match"}, close: leaveOut},
			{path: "spec.match.[]", close: applyToAll},
			{path: "spec.wasm", free: []string{"type", "failStrategy", "imagePullPolicy", "pluginName"}, close: closeExtension},
			{path: "spec.lua", close: closeLua},
		}...),
		kinds.BackendTLSPolicy: {
			{path: "spec", free: []string{"options.**"}, close: leaveOut},
			{path: "spec.targetRefs", close: closeTargets},
			{path: "spec.targetRefs.[]"},
			{path: "spec.validation", exact: true, close: closeBackend},
		},
		kinds.Telemetry:   selectors,
		kinds.ProxyConfig: selectors,
	}
})

// closeExtension closes the plugin of an extension. If there is a script, too, one of them is left out: the script, or
// a plugin that fails open.
func closeExtension(s *salvage, chain []step, field string) bool {
	spec, lua := chain[0].node, chain[0].node.get("lua")
	if lua != nil && last(chain).str("failStrategy") == "FAIL_OPEN" {
		return false
	}
	if lua != nil {
		spec.drop(lua)
	}
	return closeWasm(s, chain, field)
}

// closeLua replaces a script of a phase that admits requests by one that refuses them all, and leaves out the object of
// any other. It leaves out a script beside a plugin.
func closeLua(s *salvage, chain []step, rest string) bool {
	if chain[0].node.get("wasm") != nil {
		return false
	}
	if phase := s.root.get("spec").str("phase"); phase != "AUTHN" && phase != "AUTHZ" {
		return leaveOut(s, chain, rest)
	}
	return replaceBy(`{"inlineCode": "function envoy_on_request(handle) handle:respond({[\":status\"] = \"503\"}, \"\") end"}`)(s, chain, rest)
}

// leaveOut leaves out the whole object.
func leaveOut(s *salvage, _ []step, _ string) bool {
	s.nothing = true
	return false
}

// ofSpec returns a close that closes the whole spec if one of its fields is wrong. If nothing is replaced, the field
// alone is left out.
func ofSpec(whole func(*salvage, []step, string) bool) func(*salvage, []step, string) bool {
	return func(s *salvage, chain []step, _ string) bool { return whole(s, chain[:1], chain[1].name) }
}

// replaceBy returns a close that replaces the value by a constant one, given as JSON.
func replaceBy(text string) func(*salvage, []step, string) bool {
	return func(_ *salvage, chain []step, _ string) bool {
		last(chain).become(parsed(text))
		return true
	}
}

func last(chain []step) *node { return chain[len(chain)-1].node }

// entryOf returns the spec, and the entry of the list of routes, rules or servers that a chain leads through.
func entryOf(chain []step) (spec, in *node) {
	if len(chain) > 2 {
		in = chain[2].node
	}
	return chain[0].node, in
}

func destinationRuleUnits() []unit {
	policy := []string{"loadBalancer.**", "connectionPool.**", "outlierDetection.**", "retryBudget.**", "proxyProtocol.**"}
	list := []unit{
		{path: "spec", free: []string{"subsets"}, close: closeHost},
		{path: "spec.host", close: leaveOut},
		{path: "spec.exportTo", close: exportAsWritten},
		{path: "spec.workloadSelector", close: ownNamespace},
		{path: "spec.subsets.[]"},
	}
	for _, at := range []string{"spec", "spec.subsets.[]"} {
		list = append(list,
			unit{path: at + ".trafficPolicy", free: policy, close: closeTraffic},
			unit{path: at + ".trafficPolicy.tls", free: []string{"insecureSkipVerify", "subjectAltNames.[]"}, exact: true,
				close: closeTLS},
			unit{path: at + ".trafficPolicy.portLevelSettings", close: closePortPolicies},
			unit{path: at + ".trafficPolicy.portLevelSettings.[]", free: policy, close: closePortPolicy},
			unit{path: at + ".trafficPolicy.portLevelSettings.[].tls", free: []string{"insecureSkipVerify", "subjectAltNames.[]"},
				exact: true, close: closeTLS},
		)
	}
	return list
}

// noServer returns TLS settings that trust no server.
func noServer() *node {
	return parsed(`{"mode": "SIMPLE", "credentialName": "` + names.NoCredential + `"}`)
}

// closeHost refuses connections to the host if any TLS settings are written.
func closeHost(s *salvage, chain []step, _ string) bool {
	spec := last(chain)
	host := spec.get("host")
	if host == nil || host.shape != text || !spec.mentions("tls") {
		return leaveOut(s, chain, "")
	}
	spec.keep("host", "exportTo", "workloadSelector")
	spec.set("trafficPolicy", &node{shape: mapping, fields: []field{{name: "tls", value: noServer()}}})
	return true
}

// mentions reports whether a mapping within a value has a field of that name.
func (n *node) mentions(name string) bool {
	return slices.ContainsFunc(n.items, func(i *node) bool { return i.mentions(name) }) ||
		slices.ContainsFunc(n.fields, func(f field) bool { return f.name == name || f.value.mentions(name) })
}

// closeTraffic refuses connections if TLS settings are written, or if nothing can be read.
func closeTraffic(_ *salvage, chain []step, _ string) bool {
	p := last(chain)
	if p.shape == mapping && !p.mentions("tls") && p.get("tunnel") == nil {
		return false
	}
	p.become(&node{shape: mapping, fields: []field{{name: "tls", value: noServer()}}})
	return true
}

// closePortPolicies leaves out the settings of ports if no port is left in them.
func closePortPolicies(s *salvage, chain []step, _ string) bool {
	ports := last(chain)
	return (ports.shape != list || len(ports.items) > 0) && closeTraffic(s, chain[:len(chain)-1], "")
}

// closePortPolicy refuses connections to all ports if TLS settings are for a port that is not known.
func closePortPolicy(_ *salvage, chain []step, _ string) bool {
	settings := last(chain)
	if settings.shape == mapping && (settings.get("port") == nil || settings.get("tls") == nil) {
		return false
	}
	policy := chain[len(chain)-3].node
	policy.become(&node{shape: mapping, fields: []field{{name: "tls", value: noServer()}}})
	return true
}

// closeTLS keeps what can be read of TLS settings if that is as strict as the settings. Without a server name Envoy
// would also trust certificates for the host of the request, so a name that no server has replaces one that is wrong.
func closeTLS(_ *salvage, chain []step, field string) bool {
	tls := last(chain)
	switch mode := tls.str("mode"); {
	case mode == "DISABLE":
		tls.keep("mode")
	case mode == "ISTIO_MUTUAL" && field == "sni":
		return false
	case field == "sni" && (mode == "SIMPLE" || mode == "MUTUAL"):
		tls.set("sni", word(unusable))
	case mode == "ISTIO_MUTUAL" && slices.Contains([]string{"clientCertificate", "privateKey", "caCertificates", "credentialName",
		"caCertCredentialName", "caCrl"}, field):
		tls.keep("mode", "sni", "subjectAltNames") // the mode reads no other field
	default:
		tls.become(noServer())
	}
	return true
}

// answersRequests reports whether a route within a value answers requests itself.
func (n *node) answersRequests() bool {
	return n.mentions("directResponse") || n.mentions("redirect") || n.mentions("abort")
}

// ownNamespace makes a rule whose workloads cannot be read a rule for its whole namespace. A rule that turns TLS off
// for them is left out. If it has other TLS settings, too, connections to the host are refused.
func ownNamespace(s *salvage, chain []step, _ string) bool {
	spec := chain[0].node
	modes := spec.texts("mode")
	off := slices.Contains(modes, "DISABLE")
	if off && !slices.ContainsFunc(modes, func(m string) bool { return m != "DISABLE" }) {
		return leaveOut(s, chain, "")
	}
	spec.set("exportTo", parsed(`["."]`))
	if off {
		spec.drop(last(chain))
		return closeHost(s, chain[:1], "")
	}
	return false
}

// texts returns the texts of all fields of that name within a value.
func (n *node) texts(name string) (list []string) {
	for _, i := range n.items {
		list = append(list, i.texts(name)...)
	}
	for _, f := range n.fields {
		if f.name == name && f.value.shape == text {
			list = append(list, f.value.value)
		}
		list = append(list, f.value.texts(name)...)
	}
	return list
}

// exportWidely makes an object that restricts visible in all namespaces, for its author may mean any of them. It makes
// any other object visible in its own namespace alone.
func exportWidely(chain []step) {
	spec, at := chain[0].node, last(chain)
	everywhere := at.shape == list && slices.ContainsFunc(at.items, func(e *node) bool { return e.shape == text && e.value == "*" })
	if everywhere || spec.mentions("tls") || spec.answersRequests() {
		at.become(parsed(`["*"]`))
	} else {
		at.become(parsed(`["."]`))
	}
}

// exportAsWritten makes a rule visible in the namespaces that its exportTo names, and nowhere if none of its texts is a
// namespace. Rules that are visible replace each other and the TLS of the mesh, so a rule that is visible in more
// namespaces than its author wrote may open connections there. Only the namespaces of a value that is not a list of
// texts are unknown.
func exportAsWritten(s *salvage, chain []step, _ string) bool {
	at := last(chain)
	if at.shape != list || slices.ContainsFunc(at.items, func(e *node) bool { return e.shape != text || e.value == "*" }) {
		exportWidely(chain)
		return true
	}
	seen := map[string]bool{}
	at.items = slices.DeleteFunc(at.items, func(e *node) bool {
		again := seen[e.value]
		seen[e.value] = true
		return again || e.value != "." && !isLabel(e.value)
	})
	if len(at.items) == 0 {
		return exportNowhere(s, chain, "")
	}
	return true
}

// exportNowhere makes an object visible in no namespace, for none of its exportTo can be read.
func exportNowhere(_ *salvage, chain []step, _ string) bool {
	last(chain).become(parsed(`["~"]`))
	return true
}

// closeEgressHost leaves out a host of an egress listener. If the listener excludes that host, it imports nothing.
func closeEgressHost(_ *salvage, chain []step, _ string) bool {
	if host := last(chain); host.shape == text && strings.HasPrefix(host.value, "~") {
		host.become(parsed(`"~/*"`))
		return true
	}
	return false
}

// closeEgress keeps the first of several listeners without a port, as istiod shows its hosts to requests, and moves it
// to the end of the list. A listener whose hosts cannot be read has none.
func closeEgress(_ *salvage, chain []step, field string) bool {
	egress, out := chain[1].node, last(chain)
	switch {
	case out.shape != mapping:
		return false
	case field == "hosts":
		out.set("hosts", parsed(`["~/*"]`))
		return true
	case field != "" || out.get("port") != nil:
		return false
	}
	portless := func(n *node) bool { return n.shape == mapping && n.get("port") == nil }
	if at := slices.IndexFunc(egress.items, portless); at >= 0 {
		first := egress.items[at]
		egress.items = append(slices.DeleteFunc(egress.items, portless), first)
	}
	return true
}

// closeIngress refuses connections to the port.
func closeIngress(_ *salvage, chain []step, field string) bool {
	in := last(chain)
	tls := in.get("tls") != nil
	if in.shape != mapping || field == "port" {
		return false
	}
	in.keep("port")
	in.set("defaultEndpoint", word(noSocket))
	if tls {
		in.set("tls", parsed(`{"mode": "MUTUAL", "credentialName": "`+names.NoCredential+`"}`))
	}
	return true
}

// closeProtocol leaves out the protocol, so that it is sniffed. A port that terminates TLS refuses connections.
func closeProtocol(s *salvage, chain []step, _ string) bool {
	in, port, protocol := chain[2].node, chain[3].node, chain[4].node
	if in.get("tls") == nil {
		return false
	}
	port.drop(protocol)
	return closeIngress(s, chain[:3], "")
}

// keepFilters leaves out the patches that remove filters, chains and listeners. Patches that cannot be applied may be
// meant to replace them.
func (s *salvage) keepFilters() {
	patches := s.root.get("spec").get("configPatches")
	if patches == nil {
		return
	}
	patches.items = slices.DeleteFunc(patches.items, func(c *node) bool {
		return c.str("patch", "operation") == "REMOVE" && !slices.Contains([]string{"CLUSTER", "VIRTUAL_HOST"}, c.str("applyTo"))
	})
}

// patchEachVersion applies a patch to proxies of each version. A patch that removes something is left out, because it
// would remove what is not meant.
func patchEachVersion(s *salvage, chain []step, _ string) bool {
	patches, patch := chain[1].node, chain[2].node
	if patch.str("patch", "operation") == "REMOVE" {
		patches.drop(patch)
		s.patched = true
		return true
	}
	return false
}

// namePort gives a port a name that no other port has.
func namePort(_ *salvage, chain []step, _ string) bool {
	at := slices.Index(chain[1].node.items, chain[2].node)
	last(chain).become(word(fmt.Sprintf("unusable-%d", at)))
	return true
}

// closeServerTLS keeps a server's redirect to HTTPS. It leaves out any other server without TLS, and closes a server
// with TLS.
func closeServerTLS(s *salvage, chain []step, field string) bool {
	servers, server, tls := chain[1].node, chain[2].node, last(chain)
	redirect := tls.get("httpsRedirect")
	if !server.speaksTLS() && (redirect != nil && redirect.value == "true" || field == "httpsRedirect") {
		tls.become(parsed(`{"httpsRedirect": true}`))
		return true
	}
	if closeServer(s, chain[:3], "tls") {
		return true
	}
	servers.drop(server)
	return true
}

// speaksTLS reports whether a server terminates or forwards TLS.
func (n *node) speaksTLS() bool {
	protocol := strings.ToUpper(n.str("port", "protocol"))
	return protocol == "HTTPS" || protocol == "TLS"
}

// closeServer leaves out a server that has its port alone, that does not speak TLS, or whose port or hosts cannot be
// read. Another server on the port would take the hosts of any other server, so a certificate that is not there closes
// that.
func closeServer(_ *salvage, chain []step, field string) bool {
	servers, server := chain[1].node, chain[2].node
	port := server.get("port").get("number")
	if field == "port" || field == "hosts" || !server.speaksTLS() || port == nil {
		return false
	}
	if !slices.ContainsFunc(servers.items, func(other *node) bool {
		n := other.get("port").get("number")
		return other != server && n != nil && n.value == port.value
	}) {
		return false
	}
	server.keep("port", "hosts", "name", "bind")
	if bind := server.get("bind"); bind != nil && field == "bind" {
		server.drop(bind)
	}
	server.set("tls", parsed(`{"mode": "MUTUAL", "credentialName": "`+names.NoCredential+`"}`))
	return true
}

// closeEntry makes a service without endpoints of a ServiceEntry: calls fail, and do not go elsewhere. A service of the
// mesh stays one, with mutual TLS.
func closeEntry(s *salvage, chain []step, field string) bool {
	spec := last(chain)
	if spec.shape != mapping {
		return leaveOut(s, chain, "")
	}
	if location := spec.get("location"); location != nil && field == "location" {
		spec.drop(location)
	}
	spec.keep("hosts", "addresses", "ports", "exportTo", "subjectAltNames", "location")
	spec.set("resolution", word("STATIC"))
	return true
}

func closeHosts(s *salvage, chain []step, _ string) bool {
	if hosts := last(chain); hosts.shape != list || len(hosts.items) == 0 {
		return leaveOut(s, chain, "")
	}
	return closeEntry(s, chain[:1], "")
}

// closeAddresses leaves out a ServiceEntry without addresses if only they tell which connections are for it.
func closeAddresses(s *salvage, chain []step, _ string) bool {
	for _, port := range chain[0].node.get("ports").list() {
		if rawTCP(fieldRef{node: port}) {
			return leaveOut(s, chain, "")
		}
	}
	return false
}

// closeEndpoints makes a service without endpoints, unless other fields say where its endpoints come from.
func closeEndpoints(s *salvage, chain []step, _ string) bool {
	switch chain[0].node.str("resolution") {
	case "", "NONE", "DYNAMIC_DNS":
		return false
	}
	if chain[0].node.get("workloadSelector") != nil {
		return false
	}
	return closeEntry(s, chain[:1], "")
}

// closeTargets refuses the connections to the targets of a policy if they stood in the wrong place. It leaves out a
// policy whose targets cannot be read.
func closeTargets(s *salvage, chain []step, _ string) bool {
	targets, spec := last(chain), chain[0].node
	if targets.shape != list || len(targets.items) == 0 {
		return leaveOut(s, chain, "")
	}
	if spec.get("validation") == nil {
		spec.set("validation", &node{})
	}
	return closeBackend(s, []step{chain[0], {spec, "validation", spec.get("validation")}}, "")
}

// closeBackend names CA certificates that are not there, so that connections are refused.
func closeBackend(_ *salvage, chain []step, field string) bool {
	validation := last(chain)
	host := validation.get("hostname")
	if host == nil || host.shape != text || host.value == "" || field == "hostname" {
		host = word(unusable)
	}
	validation.become(parsed(`{"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "` + unusable + `"}]}`))
	validation.set("hostname", host)
	return true
}

// closeWasm names code that proxies cannot load, so that they refuse requests. A plugin that fails open is left out.
func closeWasm(s *salvage, chain []step, _ string) bool {
	plugin := last(chain)
	if plugin.str("failStrategy") == "FAIL_OPEN" {
		return leaveOut(s, chain, "")
	}
	if plugin.shape != mapping {
		plugin.become(&node{shape: mapping})
	}
	plugin.keep("selector", "targetRef", "targetRefs", "phase", "priority", "match", "type")
	plugin.set("url", word("https://"+unusable+"/"))
	return true
}

// applyToAll applies a plugin to all requests if it is not known to which it applies.
func applyToAll(_ *salvage, chain []step, _ string) bool {
	chain[0].node.drop(chain[1].node)
	return true
}
