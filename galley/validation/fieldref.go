package validation

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// checker checks the meaning of one object.
type checker struct {
	*findings
	limits      *limits.Limits
	review      bool // the object is not in force yet
	admission   bool // an API server asks whether to store the object
	regex       int  // total instructions of regular expressions
	expressions int  // total bytes of CEL expressions
}

// fieldRef is one field of an object, written or not: its path, its node if it was written, and the position to report.
// The schema has been checked, so a node has the shape that its field requires.
type fieldRef struct {
	*checker
	node         *node
	pos          pos
	base         string // the path of the field, or of the enclosing value if name is set
	name         string // the name of a field whose path is not made yet, or ""
	istioAccepts bool   // see tolerated
}

// path returns the path of the field. Most fields have no fault, so that their paths are not made.
func (p fieldRef) path() string {
	if p.name == "" {
		return p.base
	}
	return fieldPath(p.base, p.name)
}

// at returns the field with a JSON name. Findings about an absent field have the position of the enclosing value.
func (p fieldRef) at(name string) fieldRef {
	out := fieldRef{p.checker, nil, p.pos, p.path(), name, p.istioAccepts}
	if n := p.node.get(name); n != nil && n.shape != null {
		out.node, out.pos = n, n.pos
		if n.shape >= list { // the paths of its fields begin with its own
			out.base, out.name = out.path(), ""
		}
	}
	return out
}

func (p fieldRef) absent() bool { return p.node == nil }

// empty reports whether a list, mapping or string is empty or absent.
func (p fieldRef) empty() bool {
	return p.node == nil || len(p.node.items) == 0 && len(p.node.fields) == 0 && (p.node.shape >= list || p.node.value == "")
}

// items returns the entries of a list.
func (p fieldRef) items() []fieldRef {
	if p.node == nil {
		return nil
	}
	path := p.path()
	out := make([]fieldRef, 0, len(p.node.items))
	for i, item := range p.node.items {
		out = append(out, fieldRef{p.checker, item, item.pos, indexPath(path, i), "", p.istioAccepts})
	}
	return out
}

// each visits the entries of a mapping in the order of the text.
func (p fieldRef) each(visit func(key string, value fieldRef)) {
	if p.node == nil {
		return
	}
	path := p.path()
	for _, f := range p.node.fields {
		visit(f.name, fieldRef{p.checker, f.value, f.value.pos, fieldPath(path, f.name), "", p.istioAccepts})
	}
}

// text returns the value of a scalar, or "" if it is absent.
func (p fieldRef) text() string {
	if p.node == nil {
		return ""
	}
	return p.node.value
}

// number returns the value of a scalar, or 0 if it is absent.
func (p fieldRef) number() float64 {
	v, err := strconv.ParseFloat(p.text(), 64)
	if err != nil {
		return 0
	}
	return v
}

func (p fieldRef) is(value string) bool { return p.text() == value }

// tolerated returns the field with its errors reduced to warnings in reviews for an API server, because Istio's webhook
// accepts them and the API server may store the object. Elsewhere the errors stay errors.
func (p fieldRef) tolerated() fieldRef {
	p.istioAccepts = true
	return p
}

func (p fieldRef) add(severity diag.Severity, code, fix, format string, args ...any) {
	if severity == diag.Error && p.istioAccepts && p.admission {
		severity, format = diag.Warning, format+unused
	}
	p.findings.add(severity, p.pos, p.path(), code, fix, format, args...)
}

// unused is the end of a review's warnings about faults that are errors in force.
const unused = ": the object can be stored, but is not in force as it is written"

// bad reports an error: the object is not used as it is written.
func (p fieldRef) bad(fix, format string, args ...any) {
	p.add(diag.Error, badValue, fix, format, args...)
}

// refuse reports a fault that can be tolerated: an error in an object that is not in force yet, else a warning.
func (p fieldRef) refuse(fix, format string, args ...any) {
	if p.review {
		p.bad(fix, format, args...)
	} else {
		p.warn(fix, format, args...)
	}
}

// warn reports a doubtful value. The object is used.
func (p fieldRef) warn(fix, format string, args ...any) {
	p.add(diag.Warning, "Doubtful", fix, format, args...)
}

// missing reports that a required field is absent.
func (p fieldRef) missing(name, fix, format string, args ...any) {
	p.at(name).add(diag.Error, "MissingField", fix, format, args...)
}

// required reports an error if the field is absent or empty. It returns whether the field is present.
func (p fieldRef) required(name string) bool {
	if p.at(name).empty() {
		p.missing(name, "add "+name, "%s is required", name)
		return false
	}
	return true
}

// exclusive reports an error if more than one of the fields is set. It returns the fields that are set.
func (p fieldRef) exclusive(names ...string) []string {
	set := lists.Filter(names, func(name string) bool { return !p.at(name).absent() })
	if len(set) > 1 {
		p.at(set[1]).bad("keep one of them", "%s exclude each other", strings.Join(set, " and "))
	}
	return set
}

// between checks the range of a number, if it is written.
func (p fieldRef) between(low, high float64) {
	if v := p.number(); !p.absent() && (math.IsNaN(v) || v < low || v > high) {
		plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		if math.IsInf(high, 1) {
			p.bad("", "must be at least %s, not %s", plain(low), plain(v))
		} else {
			p.bad("", "must be from %s to %s, not %s", plain(low), plain(high), plain(v))
		}
	}
}

func (p fieldRef) atLeast(low float64) { p.between(low, math.Inf(1)) }

// port checks a required port number.
func (p fieldRef) port() {
	if p.absent() {
		p.add(diag.Error, "MissingField", "add a port number", "a port number is required")
		return
	}
	p.between(1, 65535)
}

// optionalPort checks a port number that may be absent or 0.
func (p fieldRef) optionalPort() { p.between(0, 65535) }

// duration returns the value of a duration. The schema has checked that it has the form of seconds.
func (p fieldRef) duration() time.Duration {
	d, err := time.ParseDuration(p.text())
	if err != nil {
		return 0
	}
	return d
}

// interval checks a duration that Envoy measures in milliseconds and that must not be zero.
func (p fieldRef) interval() {
	if !p.absent() && p.duration() < time.Millisecond {
		p.bad(`write a duration such as "1s"`, "the duration must be at least 1ms")
	}
	p.longest()
}

// longest checks a duration that proxies must be able to add to the time of day without an overflow.
func (p fieldRef) longest() {
	if p.duration() > 365*24*time.Hour {
		p.tolerated().bad("write 8760h at most", "the duration is longer than 365 days")
	}
}

// timeout checks a duration for which zero means none.
func (p fieldRef) timeout() {
	if d := p.duration(); !p.absent() && d != 0 && d < time.Millisecond {
		p.bad(`write a duration such as "1s", or "0s" for none`, "the duration must be 0 or at least 1ms")
	}
	p.longest()
}

// stockProgram is the largest regular-expression program that an Envoy accepts if its bootstrap sets no other limit.
const stockProgram = 100

// regexp checks a regular expression for proxies.
func (p fieldRef) regexp() {
	if p.absent() {
		return
	}
	n, err := safe.RegexSize(*p.limits, p.text())
	if err != nil {
		p.bad("write an expression in the syntax of RE2", "%v", err)
		return
	}
	p.programSize()
	if p.regex += n; p.regex > p.limits.RegexPerObject {
		p.bad("split the object, or use prefix matches",
			"the expressions of the object together need more than %d instructions", p.limits.RegexPerObject)
	}
}

// kubeExpression checks a regular expression of a route of the Gateway API. An expression that RE2 does not accept is
// no error here, because an object in the API server must get a status: the stage that reads the route refuses it, with
// a finding.
func (p fieldRef) kubeExpression() {
	if p.absent() {
		return
	}
	if _, err := safe.RegexSize(*p.limits, p.text()); err == nil {
		p.programSize()
	}
}

// programSize warns of an expression that Envoys with bootstraps of other control planes may refuse.
func (p fieldRef) programSize() {
	if size := safe.RE2Size(p.text()); size > stockProgram {
		p.add(diag.Warning, "RegexProgramSize", "shorten it, or raise re2.max_program_size.error_level in the bootstraps of your own Envoys",
			"RE2 may need up to %d instructions for the expression, and Envoy refuses more than %d by default: "+
				"bootstraps of Istio and of pilot-discovery bootstrap raise that limit", size, stockProgram)
	}
}

// subnet checks an address or a CIDR range.
func (p fieldRef) subnet() {
	if !isSubnet(p.text()) {
		p.bad(`write an address such as "10.0.0.1" or a range such as "10.0.0.0/8"`, "%q is neither an IP address nor a CIDR range", p.text())
	}
}

func isSubnet(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	return isIP(s)
}

// isIP reports whether s is an address without a zone, which means the same on every host.
func isIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

func hasZone(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() != ""
}

// withoutZone reports an error for an address with a zone. It returns whether the address has none.
func (p fieldRef) withoutZone() bool {
	if !hasZone(p.text()) {
		return true
	}
	address, _, _ := strings.Cut(p.text(), "%")
	p.bad("write "+address, "%q has a zone, which only one host knows", p.text())
	return false
}

// ofAnotherHost warns of an endpoint's address or name that leads every caller to its own host: to its own proxy's
// ports, or to a metadata server of its cloud.
func (p fieldRef) ofAnotherHost() {
	why, severity := ownHost(p.text()), diag.Warning
	if strings.HasSuffix(why, "of the loopback interface") { // what runs beside each caller, such as an authorizer, is called so
		severity = diag.Info
	}
	if why != "" {
		p.add(severity, "OwnHost", "write the address of the service, unless it runs beside each caller",
			"%q is %s: each caller reaches its own host, and the ports of its own proxy there", p.text(), why)
	}
}

// ownHost returns why an address or a name leads to the caller's own host, or "".
func ownHost(s string) string {
	if name := strings.ToLower(strings.TrimSuffix(s, ".")); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return "a name of the loopback interface"
	}
	ip, err := netip.ParseAddr(s)
	switch ip = ip.Unmap(); {
	case err != nil, ip.Zone() != "": // has a finding of its own
	case ip.IsLoopback():
		return "an address of the loopback interface"
	case ip.IsUnspecified():
		return "no address of one host"
	case ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip.IsInterfaceLocalMulticast():
		return "a link-local address"
	}
	return ""
}

// isMetadataServer reports whether an address is a link-local one at which clouds serve metadata and credentials to
// each host.
func isMetadataServer(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && slices.ContainsFunc(metadataServers, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// metadataServers are the addresses of 169.254.169.254, 169.254.170.2 and others.
var metadataServers = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/24"), netip.MustParsePrefix("169.254.170.0/24"), netip.MustParsePrefix("fe80::a9fe:a9fe/128"),
}

// bind checks the address of a listener: an IP address, or a socket if sockets are allowed.
func (p fieldRef) bind(sockets bool) {
	s := p.text()
	ip, err := netip.ParseAddr(s)
	switch {
	case p.empty():
	case sockets && isSocket(s):
		p.socket()
	case err == nil && ip.Is4In6():
		p.tolerated().bad("write "+ip.Unmap().String(), "%q is an IPv4 address written as IPv6", s)
	case err == nil:
		p.tolerated().withoutZone()
	case sockets:
		p.bad("write an IP address or unix:///path", "cannot bind to %q", s)
	default:
		p.bad("write an IP address", "cannot bind to %q", s)
	}
}

func isSocket(s string) bool { return strings.HasPrefix(s, "unix:") }

// socket checks unix:///path for a file, or unix://@name in the abstract namespace.
func (p fieldRef) socket() {
	const longest = 107 // of the 108 bytes of sun_path, the last ends the string
	path, ok := strings.CutPrefix(p.text(), "unix://")
	switch {
	case !ok, !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@"), len(path) < 2:
		p.bad("write unix:///absolute/path", "%q has no absolute path", p.text())
	case path[0] == '/' && strings.HasSuffix(path, "/"):
		p.bad("name a file", "%q is the path of a directory", p.text())
	case len(path) > longest:
		p.bad("choose a shorter one", "the path of the socket has %d bytes, more than %d", len(path), longest)
	}
}

// unique reports the second of two equal values.
type unique map[string]string

func (u unique) add(p fieldRef, what string) {
	if p.absent() {
		return
	}
	if first, dup := u[p.text()]; dup {
		p.bad("choose another", "%s %q is already used at %s", what, p.text(), first)
		return
	}
	u[p.text()] = p.path()
}

// check checks the meaning of a decoded object, whose text is n.
func (d *decoder) check(o *kinds.Object, n *node, f *findings) {
	top := fieldRef{checker: &checker{findings: f, limits: &d.limits, review: d.review, admission: d.admission()}, node: n, pos: n.pos}
	if o.Kind.Istio {
		top = top.at("spec")
	}
	if !size(o.Kind, top) {
		return // checking the rest would take long and fill the log
	}
	if judge := rules(o.Kind); judge != nil {
		judge(top)
	}
	metadata := fieldRef{checker: top.checker, node: n, pos: n.pos}.at("metadata")
	switch o.Kind {
	case kinds.Gateway:
		if name := metadata.at("name"); !name.empty() && !isLabel(name.text()) {
			name.refuse("use letters, digits and dashes", "%q cannot be the name of a Gateway", name.text())
		}
	case kinds.AuthorizationPolicy:
		if dry := metadata.at("annotations").at(kinds.AnnotationDryRun); !dry.absent() {
			if _, err := strconv.ParseBool(dry.text()); err != nil && d.review { // in force, the feature reports it
				dry.bad("write true or false", "%q is not a boolean: the policy is enforced", dry.text())
			}
		}
	}
}

// rules returns the function that checks objects of a kind, or nil if the schema is enough. It receives the spec of an
// Istio kind, and the whole object of any other kind.
func rules(k *kinds.Kind) func(fieldRef) { return allRules()[k] }

var allRules = sync.OnceValue(func() map[*kinds.Kind]func(fieldRef) {
	return map[*kinds.Kind]func(fieldRef){
		kinds.VirtualService:        virtualService,
		kinds.DestinationRule:       destinationRule,
		kinds.Gateway:               gateway,
		kinds.ServiceEntry:          serviceEntry,
		kinds.WorkloadEntry:         workloadEntry,
		kinds.WorkloadGroup:         workloadGroup,
		kinds.Sidecar:               sidecar,
		kinds.EnvoyFilter:           envoyFilter,
		kinds.ProxyConfig:           proxyConfig,
		kinds.PeerAuthentication:    peerAuthentication,
		kinds.AuthorizationPolicy:   authorizationPolicy,
		kinds.RequestAuthentication: requestAuthentication,
		kinds.Telemetry:             telemetry,
		kinds.WasmPlugin:            wasmPlugin,
		kinds.TrafficExtension:      trafficExtension,
		kinds.Service:               service,
		kinds.EndpointSlice:         endpointSlice,
		kinds.Pod:                   pod,
		kinds.Ingress:               ingress,
		kinds.IngressClass:          ingressClass,
		kinds.KubeGateway:           kubeGateway,
		kinds.ListenerSet:           listenerSet,
		kinds.ServiceImport:         serviceImport,
		kinds.HTTPRoute:             kubeRoute,
		kinds.GRPCRoute:             kubeRoute,
		kinds.TLSRoute:              connectionRoute,
		kinds.TCPRoute:              connectionRoute,
		kinds.UDPRoute:              connectionRoute,
	}
})

// ownPort warns of a port at all addresses on which injected proxies already listen themselves. sidecar says whether
// the listener belongs to a sidecar or a gateway, binds whether it binds a socket or takes redirected connections.
func (p fieldRef) ownPort(sidecar, binds bool) {
	for _, own := range []struct {
		number float64
		is     bool
		use    string
	}{
		{15000, binds, "have their admin API"},
		{15001, sidecar, "take outbound connections"},
		{15006, sidecar, "take inbound connections"},
		{15020, binds, "have the server of their agent"},
		{15021, true, "answer probes"},
		{15053, binds, "answer queries of DNS, if they capture DNS,"},
		{15090, true, "serve metrics"},
	} {
		if own.is && p.number() == own.number {
			p.warn("use another port", "proxies %s on port %v, and have no other listener there", own.use, own.number)
		}
	}
}
