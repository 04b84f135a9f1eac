package validation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// faults calls visit for each field that a message has or could have, with an object in which that field alone is
// wrong.
func faults(md protoreflect.MessageDescriptor, object map[string]any, path string, visit func(path string)) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		name := fd.JSONName()
		at := path + "." + name
		was, had := object[name]
		for _, bad := range wrong(fd) {
			object[name] = bad
			visit(at)
		}
		if had {
			object[name] = was
		} else {
			delete(object, name)
		}
		within := func(md protoreflect.MessageDescriptor, v any, at string) {
			if m, ok := v.(map[string]any); ok && md != nil && !strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
				faults(md, m, at, visit)
			}
		}
		switch v := was.(type) {
		case []any:
			for i, item := range v {
				for _, bad := range []any{1, "a b", map[string]any{"newer": 1}} {
					v[i] = bad
					visit(fmt.Sprintf("%s[%d]", at, i))
				}
				v[i] = item
				within(fd.Message(), item, fmt.Sprintf("%s[%d]", at, i))
			}
		case map[string]any:
			if !fd.IsMap() {
				within(fd.Message(), v, at)
				continue
			}
			for key, value := range v {
				v[key] = []any{1}
				visit(at + "." + key)
				v[key] = value
				within(fd.MapValue().Message(), value, at+"."+key)
			}
		}
	}
}

// wrong returns values that a field cannot have.
func wrong(fd protoreflect.FieldDescriptor) []any {
	switch {
	case fd.IsMap(), fd.IsList():
		return []any{1, "x"}
	case fd.Kind() == protoreflect.MessageKind:
		return []any{[]any{1}, 1}
	case fd.Kind() == protoreflect.StringKind:
		return []any{map[string]any{}, "a b\x01"}
	case fd.Kind() == protoreflect.EnumKind:
		return []any{"NEWER", []any{1}}
	}
	return []any{"x", []any{1}, -1}
}

const fullRule = `
host: a.b
exportTo: ["*"]
trafficPolicy:
  tls: {mode: SIMPLE, caCertificates: /c, subjectAltNames: [x, z], sni: c.d}
  connectionPool: {tcp: {maxConnections: 1}, http: {idleTimeout: 1s}}
  outlierDetection: {interval: 1s}
  loadBalancer: {simple: RANDOM}
  portLevelSettings: [{port: {number: 443},
    tls: {mode: MUTUAL, clientCertificate: /a, privateKey: /b, caCertificates: /c, subjectAltNames: [x]}}]
subsets:
- {name: v, labels: {v: "1"}, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /c, subjectAltNames: [x]}}}
`

const fullSidecar = `
egress: [{port: {number: 80, protocol: HTTP, name: a}, hosts: ["./a.b"]}, {hosts: ["./*", "b/*"]}]
ingress: [{port: {number: 90, protocol: HTTPS, name: b}, defaultEndpoint: "127.0.0.1:90",
  tls: {mode: SIMPLE, serverCertificate: /a, privateKey: /b}}]
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
inboundConnectionPool: {http: {idleTimeout: 1s}}
`

const fullRoutes = `
hosts: [a.b]
exportTo: ["*"]
http:
- name: closed
  match: [{uri: {prefix: /admin}, method: {exact: GET}, headers: {x-a: {exact: a}}}]
  directResponse: {status: 403, body: {string: text}}
- match: [{uri: {prefix: /old}}]
  redirect: {uri: /new}
- match: [{uri: {prefix: /faulty}}]
  fault: {abort: {httpStatus: 403, percentage: {value: 100}}, delay: {fixedDelay: 1s, percentage: {value: 1}}}
  route: [{destination: {host: a.b}}]
- timeout: 1s
  retries: {attempts: 1, retryOn: 5xx}
  rewrite: {uri: /public}
  headers: {request: {set: {x-id: a}, add: {x-b: b}, remove: [x-user]}}
  corsPolicy: {allowOrigins: [{exact: a}], maxAge: 1s}
  route: [{destination: {host: a.b, port: {number: 80}, subset: v}, weight: 1}]
`

const fullServers = `
selector: {a: b}
servers:
- {name: w, hosts: ["*.b"], port: {number: 443, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: c}}
- {hosts: [admin.b], port: {number: 443, name: b, protocol: HTTPS},
    tls: {mode: MUTUAL, credentialName: c, subjectAltNames: [x], minProtocolVersion: TLSV1_2, ecdhCurves: [P-384],
      alpnProtocols: [h2]}}
- {hosts: [c.b], port: {number: 80, name: c, protocol: HTTP}, tls: {httpsRedirect: true}}
`

const fullEntry = `
hosts: [a.b]
addresses: [10.0.0.1]
ports: [{number: 443, name: tls, protocol: TLS, targetPort: 1}]
resolution: DNS
location: MESH_EXTERNAL
exportTo: [c]
subjectAltNames: [x, z]
endpoints: [{address: proxy.c, ports: {tls: 444}, labels: {a: b}, weight: 1}]
`

const fullTokens = `
selector: {matchLabels: {a: b}}
jwtRules:
- issuer: i
  audiences: [a]
  jwks: '{"keys": [{"kty": "oct", "k": "YQ"}]}'
  fromHeaders: [{name: x-tok, prefix: "a "}, {name: x-tik}]
  fromParams: [p]
  fromCookies: [c]
  outputPayloadToHeader: x-payload
  outputClaimToHeaders: [{header: x-user, claim: sub}]
  timeout: 1s
  presence: REQUIRED
`

const fullPolicy = `
selector: {matchLabels: {a: b}}
action: %s
rules:
- to: [{operation: {paths: [/a]}}]
- {from: [{source: {ipBlocks: [10.0.0.1], namespaces: [c]}}], when: [{key: source.ip, values: [10.0.0.1]}]}
`

const fullPeers = `
selector: {matchLabels: {a: b}}
mtls: {mode: STRICT}
portLevelMtls: {80: {mode: STRICT}}
`

const fullPlugin = `
selector: {matchLabels: {a: b}}
url: oci://a/b
sha256: ` + "'" + `0000000000000000000000000000000000000000000000000000000000000000` + "'" + `
phase: AUTHN
pluginConfig: {a: b}
match: [{mode: SERVER, ports: [{number: 80}]}]
vmConfig: {env: [{name: A, value: b}]}
`

const fullWasm = `
selector: {matchLabels: {a: b}}
phase: AUTHN
match: [{mode: SERVER, ports: [{number: 80}]}]
wasm:
  url: oci://a/b
  sha256: ` + "'" + `0000000000000000000000000000000000000000000000000000000000000000` + "'" + `
  pluginConfig: {a: b}
  vmConfig: {env: [{name: A, value: b}]}
`

const fullLua = `
selector: {matchLabels: {a: b}}
phase: AUTHZ
match: [{mode: SERVER, ports: [{number: 80}]}]
lua: {inlineCode: "a = 1"}
`

const fullPatches = `
configPatches:
- applyTo: HTTP_FILTER
  match: {context: SIDECAR_INBOUND}
  patch: {operation: INSERT_FIRST, value: {name: guard}}
- {applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: other}}}
- {applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: a}}}}, patch: {operation: REMOVE}}
`

// secured reports whether TLS settings are those that are written, with fewer names, or trust no server.
func secured(t *networkingv1alpha3.ClientTLSSettings) bool {
	if t.GetCredentialName() == names.NoCredential {
		return t.Mode == networkingv1alpha3.ClientTLSSettings_SIMPLE && !t.InsecureSkipVerify.GetValue()
	}
	return t.GetMode() != networkingv1alpha3.ClientTLSSettings_DISABLE && t.CaCertificates == "/c" && len(t.SubjectAltNames) > 0 &&
		!t.InsecureSkipVerify.GetValue()
}

func covers(m *networkingv1alpha3.HTTPRoute, path string) bool {
	return len(m.Match) == 0 || slices.ContainsFunc(m.Match, func(m *networkingv1alpha3.HTTPMatchRequest) bool {
		return m.Uri == nil || strings.HasPrefix(path, m.Uri.GetPrefix()) && m.Uri.GetPrefix() != ""
	})
}

// opens returns what an object that is in force lets through that the one that is written does not, or "". at is the
// field that is wrong.
func opens(o *kinds.Object, at string) string {
	switch spec := o.Spec.(type) {
	case *networkingv1.DestinationRule:
		switch {
		case at == "spec.workloadSelector": // the rule is for its own namespace
		case at == "spec.exportTo[0]" && slices.Equal(spec.ExportTo, []string{"~"}): // the text is no namespace
		case !slices.Equal(spec.ExportTo, []string{"*"}):
			return "it is hidden"
		}
		if !secured(spec.TrafficPolicy.GetTls()) {
			return "connections are not secured"
		}
		for _, p := range spec.TrafficPolicy.PortLevelSettings {
			if !secured(p.Tls) {
				return "connections to a port are not secured"
			}
		}
		for _, s := range spec.Subsets {
			if s.TrafficPolicy != nil && !secured(s.TrafficPolicy.Tls) {
				return "connections to a subset are not secured"
			}
		}
	case *networkingv1.Sidecar:
		if spec.OutboundTrafficPolicy.GetMode() != networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY || spec.OutboundTrafficPolicy == nil {
			return "connections may go anywhere"
		}
		for _, h := range egressHosts(spec) {
			if !slices.Contains([]string{"./a.b", "./*", "b/*", "~/*"}, h) {
				return "it sees " + h
			}
		}
		for _, in := range spec.Ingress {
			if in.Port.GetNumber() == 15001 && in.DefaultEndpoint == noSocket { // it replaces listeners that cannot be read
				continue
			}
			if in.Tls == nil || in.Tls.CredentialName != names.NoCredential && in.Tls.ServerCertificate != "/a" ||
				in.Tls.CredentialName != "" && in.DefaultEndpoint != noSocket {
				return "the port takes plaintext"
			}
		}
		if len(spec.Ingress) == 0 && !strings.HasPrefix(at, "spec.ingress") {
			return "the port is not there"
		}
	case *networkingv1.VirtualService:
		switch {
		case at == "spec.exportTo[0]" && slices.Equal(spec.ExportTo, []string{"~"}): // the text is no namespace
			return ""
		case !slices.Equal(spec.ExportTo, []string{"*"}):
			return "it is hidden"
		}
		for _, path := range []string{"/admin", "/old", "/faulty"} {
			i := slices.IndexFunc(spec.Http, func(r *networkingv1alpha3.HTTPRoute) bool { return covers(r, path) })
			if i >= 0 && spec.Http[i].DirectResponse.GetStatus() < 400 && spec.Http[i].Redirect == nil &&
				spec.Http[i].Fault.GetAbort().GetHttpStatus() < 400 {
				return path + " is routed"
			}
			if abort := spec.Http[max(i, 0)].Fault.GetAbort(); abort != nil && abort.Percentage.GetValue() != 100 {
				return path + " is routed at times"
			}
		}
		for _, r := range spec.Http {
			h := r.Headers.GetRequest()
			if len(r.Route) == 0 || r.Fault.GetAbort() != nil {
				continue
			}
			if r.Rewrite.GetUri() != "/public" {
				return "other paths are routed"
			}
			if h.GetSet()["x-id"] != "a" && !slices.Contains(h.GetRemove(), "x-id") ||
				!slices.Contains(h.GetRemove(), "x-user") && !strings.HasSuffix(at, "remove[0]") {
				return "a client says who it is"
			}
			if d := r.Route[0].Destination; d.Subset != "v" || d.Port.GetNumber() != 80 {
				return "requests go elsewhere"
			}
		}
	case *networkingv1.Gateway:
		if spec.Selector["a"] != "b" {
			return "it is for all gateways"
		}
		admin := false
		for _, s := range spec.Servers {
			if slices.Contains(s.Hosts, "admin.b") {
				admin = true
				if s.Tls.GetMode() != networkingv1alpha3.ServerTLSSettings_MUTUAL ||
					s.Tls.CredentialName != names.NoCredential && !slices.Equal(s.Tls.SubjectAltNames, []string{"x"}) {
					return "a client without a certificate is let in"
				}
				if s.Tls.CredentialName != names.NoCredential &&
					!(slices.Equal(s.Tls.EcdhCurves, []string{"P-384"}) && slices.Equal(s.Tls.AlpnProtocols, []string{"h2"})) {
					return "other curves or protocols are accepted"
				}
			}
			if slices.Contains(s.Hosts, "c.b") && !s.Tls.GetHttpsRedirect() {
				return "requests in plaintext are not redirected"
			}
			if s.Port.Number == 443 && s.Tls == nil {
				return "a port without TLS"
			}
		}
		unknown := strings.HasPrefix(at, "spec.servers[1].port") || strings.HasPrefix(at, "spec.servers[1].hosts") || at == "spec.servers[1]"
		if !admin && !unknown && slices.ContainsFunc(spec.Servers,
			func(s *networkingv1alpha3.Server) bool { return slices.Contains(s.Hosts, "*.b") }) {
			return "another server takes the host"
		}
	case *networkingv1.ServiceEntry:
		for _, ns := range spec.ExportTo {
			if ns != "c" && ns != "~" {
				return "it is visible in " + ns
			}
		}
		for _, n := range spec.SubjectAltNames {
			if !slices.Contains([]string{"x", "z", unusable}, n) {
				return "it trusts " + n
			}
		}
		if len(spec.ExportTo) == 0 || len(spec.SubjectAltNames) == 0 {
			return "it is visible everywhere, or trusts all"
		}
		if len(spec.Endpoints) == 0 && spec.Resolution != networkingv1alpha3.ServiceEntry_STATIC {
			return "calls go elsewhere"
		}
	case *networkingv1alpha3.EnvoyFilter:
		kept := map[string]bool{}
		for _, p := range spec.ConfigPatches {
			if p.Patch.GetOperation() == networkingv1alpha3.EnvoyFilter_Patch_REMOVE && strings.HasPrefix(at, "spec.configPatches[") {
				return "a filter is removed"
			}
			kept[p.Patch.GetValue().GetFields()["name"].GetStringValue()] = true
		}
		if !kept["guard"] && !strings.HasPrefix(at, "spec.configPatches[0]") && at != "spec.configPatches" ||
			!kept["other"] && !strings.HasPrefix(at, "spec.configPatches[1]") && at != "spec.configPatches" {
			return "a patch is missing"
		}
	case *securityv1.PeerAuthentication:
		for _, m := range spec.PortLevelMtls {
			if m.Mode != securityv1.PeerAuthentication_MutualTLS_STRICT {
				return "a port takes plaintext"
			}
		}
		if spec.Mtls.GetMode() != securityv1.PeerAuthentication_MutualTLS_STRICT ||
			spec.Selector != nil && spec.Selector.MatchLabels["a"] != "b" {
			return "plaintext is taken"
		}
	case *securityv1.AuthorizationPolicy:
		if spec.Selector != nil && spec.Selector.MatchLabels["a"] != "b" {
			return "it is for other workloads"
		}
		first := slices.ContainsFunc(spec.Rules, func(r *securityv1.Rule) bool {
			return len(r.From)+len(r.When) == 0 && (len(r.To) == 0 || len(r.To[0].Operation.GetPaths()) == 1)
		})
		second := slices.ContainsFunc(spec.Rules, func(r *securityv1.Rule) bool {
			return proto.Size(r) == 0 || len(r.From) == 1 && len(r.When) == 1 && len(r.When[0].Values) == 1 &&
				len(r.From[0].Source.GetNamespaces()) == 1 && len(r.From[0].Source.GetIpBlocks()) == 1
		})
		switch spec.Action {
		case securityv1.AuthorizationPolicy_DENY:
			if !first || !second {
				return "a rule does not refuse"
			}
		case securityv1.AuthorizationPolicy_ALLOW:
			for _, r := range spec.Rules {
				if spec.Selector == nil || proto.Size(r) == 0 ||
					len(r.To) == 0 && (len(r.From) == 0 || len(r.When) == 0 || len(r.From[0].Source.GetNamespaces()) == 0 ||
						len(r.From[0].Source.GetIpBlocks()) == 0) {
					return "a rule allows more"
				}
			}
		}
	case *securityv1.RequestAuthentication:
		if len(spec.JwtRules) != 1 {
			return "tokens are not looked at"
		}
		r := spec.JwtRules[0]
		if r.Presence != securityv1.JWTRule_REQUIRED {
			return "requests without a token pass"
		}
		if r.Jwks != jwks.AcceptsNone && (spec.Selector == nil || r.Issuer != "i" || len(r.Audiences) == 0 || !strings.Contains(r.Jwks, "YQ") ||
			r.JwksUri != "") {
			return "other tokens are accepted"
		}
		if strings.HasPrefix(at, "spec.jwtRules[0].") {
			header := slices.ContainsFunc(r.FromHeaders, func(h *securityv1.JWTHeader) bool { return h.Name == "x-tok" && h.Prefix == "a " })
			if !header && !strings.Contains(at, "fromHeaders") || len(r.FromParams) == 0 && !strings.Contains(at, "fromParams") ||
				len(r.FromCookies) == 0 && !strings.Contains(at, "fromCookies") {
				return "tokens are not looked for where they are"
			}
			if r.OutputPayloadToHeader != "x-payload" && !strings.Contains(at, "outputPayloadToHeader") {
				return "a forged payload passes"
			}
			if c := r.OutputClaimToHeaders; (len(c) != 1 || c[0].Header != "x-user") && at != "spec.jwtRules[0].outputClaimToHeaders" &&
				!strings.Contains(at, "outputClaimToHeaders[0].header") && at != "spec.jwtRules[0].outputClaimToHeaders[0]" {
				return "a forged claim passes"
			}
		}
	case *extensionsv1alpha1.TrafficExtension:
		wasm := spec.GetWasm()
		intact := wasm.GetUrl() == "https://"+unusable+"/" || wasm.GetUrl() == "oci://a/b" &&
			strings.Contains(wasm.Sha256, "0000") && wasm.PluginConfig.GetFields()["a"] != nil
		refuses := spec.GetLua().GetInlineCode() == "a = 1" || strings.Contains(spec.GetLua().GetInlineCode(), `"503"`)
		if !refuses && (!intact || wasm.FailStrategy == extensionsv1alpha1.FailStrategy_FAIL_OPEN) {
			return "the extension is not what it was"
		}
		if spec.Selector.GetMatchLabels()["a"] != "b" || len(spec.Match) > 1 ||
			len(spec.Match) == 1 && len(spec.Match[0].Ports) > 0 && spec.Match[0].Ports[0].Number != 80 {
			return "it is for other requests"
		}
	default:
		text := fmt.Sprint(o.Spec)
		if !strings.Contains(text, `url:"https://`+unusable+`/"`) && !strings.Contains(text, "0000") || strings.Contains(text, "FAIL_OPEN") {
			return "the plugin is not what it was"
		}
	}
	return ""
}

// TestNothingOpens has each field of each kind that restricts something be wrong, in an object that uses all that
// restricts, and compares what is in force with what is written.
func TestNothingOpens(t *testing.T) {
	histories.NoRace(t)
	for _, c := range []struct {
		kind *kinds.Kind
		spec string
		// Fields without which nothing can be in force: it is not known for which hosts or workloads that would be.
		needs []string
	}{
		{kinds.DestinationRule, fullRule, []string{"spec.host"}},
		{kinds.Sidecar, fullSidecar, []string{"spec.workloadSelector"}},
		{kinds.VirtualService, fullRoutes, []string{"spec.hosts", "spec.hosts[0]", "spec.gateways"}},
		{kinds.Gateway, fullServers, []string{"spec.selector", "spec.servers"}},
		{kinds.ServiceEntry, fullEntry, []string{"spec.hosts", "spec.hosts[0]"}},
		{kinds.EnvoyFilter, fullPatches, []string{"spec.workloadSelector", "spec.targetRefs"}},
		{kinds.RequestAuthentication, fullTokens, nil},
		{kinds.AuthorizationPolicy, fmt.Sprintf(fullPolicy, "DENY"), nil},
		{kinds.AuthorizationPolicy, fmt.Sprintf(fullPolicy, "ALLOW"), nil},
		{kinds.PeerAuthentication, fullPeers, nil},
		{kinds.WasmPlugin, fullPlugin, []string{"spec.selector", "spec.targetRef", "spec.targetRefs"}},
		{kinds.TrafficExtension, fullWasm, []string{"spec.selector", "spec.targetRef", "spec.targetRefs"}},
		{kinds.TrafficExtension, fullLua, []string{"spec.selector", "spec.targetRef", "spec.targetRefs"}},
	} {
		body, err := yaml.YAMLToJSON([]byte(c.spec))
		must.Succeed(t, err)
		var spec map[string]any
		must.Succeed(t, json.Unmarshal(body, &spec))
		read := func() Document {
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "o", "namespace": "store"}, "spec": spec})
			must.Succeed(t, err)
			return Object(limits.Default(), c.kind, text)
		}
		if whole := read(); whole.Object == nil {
			t.Errorf("%s: %v", c.kind.Name, whole.Findings)
			continue
		} else if why := opens(whole.Object, ""); why != "" {
			t.Errorf("%s as it is written: %s", c.kind.Name, why)
		}
		n := 0
		faults(c.kind.New().(proto.Message).ProtoReflect().Descriptor(), spec, "spec", func(at string) {
			doc := read()
			if n++; doc.Object != nil {
				return
			}
			if doc.Kept == nil {
				if !slices.ContainsFunc(c.needs, func(f string) bool { return encloses(f, at) }) {
					t.Errorf("%s, %s: nothing is in force: %v", c.kind.Name, at, doc.Findings)
				}
				return
			}
			if why := opens(doc.Kept, at); why != "" {
				t.Errorf("%s, %s: %s: %v", c.kind.Name, at, why, doc.Kept.Spec)
			}
		})
		if n < 10 {
			t.Errorf("%s: %d faults", c.kind.Name, n)
		}
	}
}
