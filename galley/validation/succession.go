package validation

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// InForce is the outcome for an object: what is in force.
type InForce struct {
	Object *kinds.Object // nil if nothing is in force

	// Beside is the last good version, with kinds.LastGood at the end of its name. It is nil unless the last good
	// version is in force together with Object.
	Beside *kinds.Object

	// Instead describes what is in force instead of the written object, and Why is the message of a finding about it.
	// Both are empty if the object is in force as it is written.
	Instead, Why string
}

// instead returns an InForce for an object that cannot be used.
func instead(o *kinds.Object, what string) InForce {
	return InForce{Object: o, Instead: what, Why: "the object cannot be used: " + what}
}

// Closed returns the strictest object of a security kind that data, an object as JSON, may mean: an AuthorizationPolicy
// that denies everything, or, if its action is ALLOW, allows nothing; a PeerAuthentication that accepts only mTLS; a
// RequestAuthentication that accepts no token, with the written locations and output headers. It selects the written
// workloads, or the whole namespace if they cannot be read. It returns nil if the kind is not a security kind, or if
// the metadata cannot be read.
func Closed(l limits.Limits, kind *kinds.Kind, data []byte) *kinds.Object {
	if !kind.Security {
		return nil
	}
	var text struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	if json.Unmarshal(data, &text) != nil {
		return nil
	}
	metadata, err := parseJSON(text.Metadata, l.YAMLDepth)
	if err != nil {
		return nil
	}
	unreadable := &node{shape: null, plain: true}
	specs := []*node{unreadable}
	if spec, err := parseJSON(text.Spec, l.YAMLDepth); err == nil {
		specs = []*node{spec, unreadable}
	}
	for _, spec := range specs {
		root := &node{shape: mapping, fields: []field{{name: "metadata", value: metadata.clone()}, {name: "spec", value: spec}}}
		s := salvage{d: &decoder{limits: l, stored: true}, kind: kind, root: root, settled: map[*node]bool{}}
		units(kind)[0].close(&s, []step{{root, "spec", spec}}, "")
		if o := s.run(nil); o != nil {
			return o
		}
	}
	return nil
}

// InForce returns what is in force after the document was read. last is the last good version of its object, or nil.
func (d Document) InForce(last *kinds.Object) InForce {
	switch {
	case d.Object != nil:
		return InForce{Object: d.Object}
	case last == nil && d.Kept == nil:
		return instead(nil, "it is left out")
	case last == nil && len(d.Cut) == 0:
		return instead(d.Kept, "the strictest one of its kind is in force for what it selects")
	case last == nil:
		return d.partly("")
	case d.Kept == nil:
		return instead(last, stays)
	}
	object, beside := last, (*kinds.Object)(nil)
	switch last.Kind {
	case kinds.AuthorizationPolicy:
		object, beside = d.policyAfter(last)
	case kinds.PeerAuthentication:
		object, beside = d.peersAfter(last)
	case kinds.RequestAuthentication:
		object, beside = d.authenticationAfter(last)
	default:
		if d.restrictsMore(last) {
			return d.partly(", which restricts more than the last good version")
		}
	}
	switch {
	case object == last:
		return instead(last, stays)
	case beside != nil:
		named := *beside
		named.Name += kinds.LastGood
		force := instead(object, stays+", and what can be read of the new one is in force beside it")
		force.Beside = &named
		return force
	}
	force := d.partly(", as strict as the last good version")
	force.Object = object
	return force
}

const stays = "its last good version stays in force"

// partly returns an InForce for the object without its faults. more is added to its description.
func (d Document) partly(more string) InForce {
	if len(d.Cut) == 0 {
		what := "the object is in force, with its numbers read without their quotes" + more
		return InForce{Object: d.Kept, Instead: what, Why: "the object has numbers in quotes: " + what}
	}
	what := "the rest of the object is in force"
	why := "the object cannot be used as it is written: without, or with something stricter for, " + some(d.Cut) + ", " + what + more
	if len(d.Closed) > 0 {
		what += ", with something stricter for " + some(d.Closed)
	}
	return InForce{Object: d.Kept, Instead: what + more, Why: why}
}

// some returns the first paths of a list, separated by commas.
func some(paths []string) string {
	const most = 5
	if len(paths) > most {
		paths = append(slices.Clone(paths[:most]), "more")
	}
	return strings.Join(paths, ", ")
}

// cuts reports whether a field, or a value within it, is wrong.
func (d Document) cuts(fields ...string) bool {
	return slices.ContainsFunc(d.Cut, func(path string) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return encloses("spec."+f, path) })
	})
}

// with returns a copy of an object that has another spec.
func with[M proto.Message](o *kinds.Object, change func(M)) *kinds.Object {
	out := *o
	spec := proto.Clone(o.Spec.(proto.Message)).(M)
	change(spec)
	out.Spec = spec
	return &out
}

// policyAfter returns what is in force after a version of an AuthorizationPolicy with errors. Requests that readable
// rules of the new version refuse are refused, and requests that the last good version refuses stay refused. If both
// versions only allow, requests that both allow are allowed. If the action cannot be read, the rules refuse.
func (d Document) policyAfter(last *kinds.Object) (object, beside *kinds.Object) {
	was := last.Spec.(*securityv1.AuthorizationPolicy)
	next := d.readable()
	if next == nil || len(next.Spec.(*securityv1.AuthorizationPolicy).Rules) == 0 {
		if was.Action == securityv1.AuthorizationPolicy_DENY || was.Action == securityv1.AuthorizationPolicy_CUSTOM {
			return last, nil
		}
		next = d.Kept
	}
	next = with(next, func(p *securityv1.AuthorizationPolicy) {
		if d.cuts("action") {
			p.Action = securityv1.AuthorizationPolicy_DENY
		}
		if d.cuts(targets()...) { // for the workloads of the last good version
			p.Selector, p.TargetRef, p.TargetRefs = was.Selector, was.TargetRef, was.TargetRefs
		}
	})
	becomes := next.Spec.(*securityv1.AuthorizationPolicy)
	switch {
	case becomes.Action == securityv1.AuthorizationPolicy_AUDIT:
		return last, nil
	case was.Action != securityv1.AuthorizationPolicy_ALLOW || becomes.Action != securityv1.AuthorizationPolicy_ALLOW:
		return next, last
	}
	allow := func(p *securityv1.AuthorizationPolicy) { p.Rules = allowedByBoth(was.Rules, becomes.Rules) }
	switch selections(was, becomes) {
	case otherWorkloads:
		return next, last
	case someWorkloads:
		beside = with(last, allow)
	}
	return with(next, allow), beside
}

// readable returns the object without its wrong fields, or nil if nothing can be read.
func (d Document) readable() *kinds.Object {
	if d.read == nil {
		return nil
	}
	o := d.read()
	if o != nil {
		o.Created = d.Kept.Created
	}
	return o
}

// peersAfter returns what is in force after a version of a PeerAuthentication with errors: for all ports, and for each
// port, the stricter mode of both versions. A mode that cannot be read is STRICT.
func (d Document) peersAfter(last *kinds.Object) (object, beside *kinds.Object) {
	next := d.readable()
	if next == nil {
		return last, nil
	}
	was := last.Spec.(*securityv1.PeerAuthentication)
	next = with(next, func(p *securityv1.PeerAuthentication) {
		if d.cuts(targets()...) {
			p.Selector = was.Selector
		}
		if d.cuts("mtls") {
			p.Mtls = &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}
		}
	})
	now, ports := next.Spec.(*securityv1.PeerAuthentication), map[uint32]*securityv1.PeerAuthentication_MutualTLS{}
	maps.Copy(ports, d.Kept.Spec.(*securityv1.PeerAuthentication).PortLevelMtls)
	maps.Copy(ports, now.PortLevelMtls)
	merge := func(p *securityv1.PeerAuthentication) {
		p.Mtls = stricter(was.Mtls, now.Mtls)
		p.PortLevelMtls = map[uint32]*securityv1.PeerAuthentication_MutualTLS{}
		for port, m := range was.PortLevelMtls {
			p.PortLevelMtls[port] = stricter(m, now.Mtls)
		}
		for port, m := range ports {
			of := was.Mtls
			if own := was.PortLevelMtls[port]; own != nil {
				of = own
			}
			p.PortLevelMtls[port] = stricter(of, m)
		}
	}
	switch selections(was, now) {
	case otherWorkloads:
		return with(next, merge), last
	case someWorkloads:
		return with(next, merge), with(last, merge)
	}
	return with(next, merge), nil
}

// stricter returns the stricter one of two modes. A mode that is not set comes from an object that selects more
// workloads, and is not stricter than any other.
func stricter(a, b *securityv1.PeerAuthentication_MutualTLS) *securityv1.PeerAuthentication_MutualTLS {
	rank := func(m *securityv1.PeerAuthentication_MutualTLS) int {
		return slices.Index([]securityv1.PeerAuthentication_MutualTLS_Mode{
			securityv1.PeerAuthentication_MutualTLS_UNSET, securityv1.PeerAuthentication_MutualTLS_DISABLE,
			securityv1.PeerAuthentication_MutualTLS_PERMISSIVE, securityv1.PeerAuthentication_MutualTLS_STRICT,
		}, m.GetMode())
	}
	if rank(a) >= rank(b) {
		return a
	}
	return b
}

// authenticationAfter returns what is in force after a version of a RequestAuthentication with errors: its rules. An
// issuer whose keys cannot be read has the keys of the last good version.
func (d Document) authenticationAfter(last *kinds.Object) (object, beside *kinds.Object) {
	spec := last.Spec.(*securityv1.RequestAuthentication)
	was := spec.JwtRules
	if d.cuts(targets()...) || d.readable() == nil {
		return last, nil
	}
	if selections(spec, d.Kept.Spec.(*securityv1.RequestAuthentication)) != sameWorkloads {
		beside = last
	}
	object = with(d.Kept, func(p *securityv1.RequestAuthentication) {
		vague, named := false, map[string]bool{}
		for _, rule := range p.JwtRules {
			named[rule.Issuer] = true
			vague = vague || rule.Issuer == unusable
			for _, before := range was {
				if before.Issuer == rule.Issuer && rule.Jwks == jwks.AcceptsNone {
					rule.Jwks, rule.JwksUri, rule.Audiences = before.Jwks, before.JwksUri, before.Audiences
				}
			}
		}
		for _, before := range was {
			if vague && !named[before.Issuer] { // it may be the issuer that cannot be read
				p.JwtRules = append(p.JwtRules, before)
			}
		}
	})
	return object, beside
}

// restrictsMore reports whether the readable part of a document restricts something that the last good version does
// not.
func (d Document) restrictsMore(last *kinds.Object) bool {
	next := d.readable()
	if next == nil {
		return false
	}
	if rule, ok := d.Kept.Spec.(*networkingv1.DestinationRule); ok && slices.Equal(rule.ExportTo, []string{"~"}) {
		return false // it would be in force for no proxy
	}
	before := restrictions(last)
	for r := range restrictions(next) {
		if !before[r] {
			return true
		}
	}
	if was, ok := last.Spec.(*networkingv1.Sidecar); ok && !d.cuts("egress") {
		then, now := egressHosts(was), egressHosts(next.Spec.(*networkingv1.Sidecar))
		lacks := func(in []string, excluded bool) func(string) bool {
			return func(h string) bool { return strings.HasPrefix(h, "~") == excluded && !slices.Contains(in, h) }
		}
		return slices.ContainsFunc(then, lacks(now, false)) || slices.ContainsFunc(now, lacks(then, true))
	}
	return false
}

func egressHosts(s *networkingv1.Sidecar) []string {
	var list []string
	for _, e := range s.Egress {
		list = append(list, e.Hosts...)
	}
	if len(s.Egress) == 0 {
		list = []string{"*/*"}
	}
	return list
}

// restrictions returns the restrictions of an object in comparable form.
func restrictions(o *kinds.Object) map[string]bool {
	out := map[string]bool{}
	add := func(of string, parts ...proto.Message) {
		for _, m := range parts {
			text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err == nil {
				of += "\n" + string(text)
			}
		}
		out[of] = true
	}
	switch spec := o.Spec.(type) {
	case *networkingv1.DestinationRule:
		policy := func(of string, p *networkingv1alpha3.TrafficPolicy) {
			for _, port := range p.GetPortLevelSettings() {
				if port.Tls.GetMode() != networkingv1alpha3.ClientTLSSettings_DISABLE {
					add("port "+of, port.Port, port.Tls)
				}
			}
			if p.GetTls().GetMode() != networkingv1alpha3.ClientTLSSettings_DISABLE {
				add("tls "+of, p.Tls)
			}
		}
		policy("", spec.TrafficPolicy)
		for _, s := range spec.Subsets {
			policy("of subset "+s.Name, s.TrafficPolicy)
		}
	case *networkingv1.Sidecar:
		if p := spec.OutboundTrafficPolicy; p != nil && p.Mode == networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY {
			add("REGISTRY_ONLY")
		}
		for _, in := range spec.Ingress {
			if in.Tls != nil {
				add("ingress", in.Port, in.Tls)
			}
		}
	case *networkingv1.VirtualService:
		hosts := strings.Join(slices.Sorted(slices.Values(spec.Hosts)), " ")
		for _, r := range spec.Http {
			if r.DirectResponse == nil && r.Redirect == nil && r.Fault.GetAbort() == nil {
				continue
			}
			parts := []proto.Message{&networkingv1alpha3.HTTPRoute{Match: r.Match, DirectResponse: r.DirectResponse, Redirect: r.Redirect}}
			if r.Fault.GetAbort() != nil {
				parts = append(parts, r.Fault.Abort)
			}
			add(hosts, parts...)
		}
	case *networkingv1alpha3.EnvoyFilter:
		for _, p := range spec.ConfigPatches {
			if p.Patch.GetOperation() != networkingv1alpha3.EnvoyFilter_Patch_REMOVE {
				add("patch", p)
			}
		}
	case *networkingv1.Gateway:
		for _, s := range spec.Servers {
			if s.Tls != nil {
				add("server", s.Port, s.Tls, &networkingv1alpha3.Server{Hosts: s.Hosts})
			}
		}
	case *networkingv1.ServiceEntry:
		for _, n := range spec.SubjectAltNames {
			add("identity " + n)
		}
		if len(spec.ExportTo) > 0 && !slices.Contains(spec.ExportTo, "*") {
			add("exportTo " + strings.Join(slices.Sorted(slices.Values(spec.ExportTo)), " "))
		}
	case *extensionsv1alpha1.WasmPlugin:
		if spec.FailStrategy != extensionsv1alpha1.FailStrategy_FAIL_OPEN {
			spec = proto.Clone(spec).(*extensionsv1alpha1.WasmPlugin)
			spec.Priority, spec.ImagePullPolicy = nil, 0
			add("plugin", spec)
		}
	case *extensionsv1alpha1.TrafficExtension:
		if spec.GetWasm().GetFailStrategy() != extensionsv1alpha1.FailStrategy_FAIL_OPEN {
			spec = proto.Clone(spec).(*extensionsv1alpha1.TrafficExtension)
			spec.Priority = nil
			if wasm := spec.GetWasm(); wasm != nil {
				wasm.ImagePullPolicy = 0
			}
			add("extension", spec)
		}
	}
	return out
}
