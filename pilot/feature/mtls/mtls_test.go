package mtls_test

import (
	"slices"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestSentRoots: that proxies trust no further roots is a finding, unless they are sent them. Then it is one that those
// of another trust domain count for all.
func TestSentRoots(t *testing.T) {
	c := &meshv1alpha1.MeshConfig{CaCertificates: []*meshv1alpha1.MeshConfig_CertificateData{
		{CertificateData: &meshv1alpha1.MeshConfig_CertificateData_Pem{Pem: "x"}, CertSigners: []string{"s"}},
	}}
	of := func(sendRoots bool) (fields []string) {
		for _, d := range mtls.New(sendRoots, false).UnsupportedMesh(mesh.Default(), c) {
			fields = append(fields, d.Field)
		}
		return fields
	}
	if got := of(false); !slices.Equal(got, []string{"caCertificates"}) {
		t.Errorf("findings about %q", got)
	}
	if got := of(true); len(got) > 0 {
		t.Errorf("findings about %q", got)
	}
	c.CaCertificates[0].TrustDomains = []string{"elsewhere.example"}
	if got := of(true); !slices.Equal(got, []string{"caCertificates[0].trustDomains"}) {
		t.Errorf("findings about %q", got)
	}
}

// TestAnyTrustDomain: without a check of trust domains, clients still need a certificate that the roots prove.
func TestAnyTrustDomain(t *testing.T) {
	for anyTrustDomain, names := range map[bool]int{false: 1, true: 0} {
		c := &tlsv3.DownstreamTlsContext{}
		socket := mtls.New(false, anyTrustDomain).Transport.Downstream(feature.Downstream{Mesh: mesh.Default()})
		must.Succeed(t, socket.GetTypedConfig().UnmarshalTo(c))
		validation := c.CommonTlsContext.GetCombinedValidationContext()
		//nolint:staticcheck // the field that istiod sends
		if got := len(validation.GetDefaultValidationContext().GetMatchSubjectAltNames()); got != names {
			t.Errorf("any trust domain %v: %d names are accepted", anyTrustDomain, got)
		}
		if !c.GetRequireClientCertificate().GetValue() || validation.GetValidationContextSdsSecretConfig().GetName() != "ROOTCA" {
			t.Errorf("any trust domain %v: %v", anyTrustDomain, c)
		}
	}
}

var transport = mtls.New(false, false).Transport

func policies(t *testing.T, specs ...string) feature.Selection {
	t.Helper()
	var list []*kinds.Object
	for _, s := range specs {
		spec := &securityv1.PeerAuthentication{}
		must.Succeed(t, protojson.Unmarshal([]byte(s), spec))
		list = append(list, &kinds.Object{Spec: spec})
	}
	return feature.Of(list...)
}

// TestModes: policies come in the order mesh, namespace, workload; what one leaves unset comes from the one before.
func TestModes(t *testing.T) {
	const (
		strict, permissive, disable, unset = `{"mtls":{"mode":"STRICT"}}`, `{"mtls":{"mode":"PERMISSIVE"}}`,
			`{"mtls":{"mode":"DISABLE"}}`, `{"mtls":{"mode":"UNSET"}}`
		ports = `{"selector":{"matchLabels":{"app":"web"}},` +
			`"portLevelMtls":{"8080":{"mode":"DISABLE"},"8081":{"mode":"UNSET"},"90":{"mode":"STRICT"}}}`
		workload = `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"8080":{"mode":"STRICT"}}}`
		wide     = `{"mtls":{"mode":"STRICT"},"portLevelMtls":{"8080":{"mode":"DISABLE"}}}`
	)
	for _, c := range []struct {
		name              string
		specs             []string
		all, p8080, p8081 feature.Mode
		ports             []uint32
	}{
		{name: "none"},
		{name: "mesh", specs: []string{strict}, all: feature.Strict, p8080: feature.Strict, p8081: feature.Strict},
		{name: "mesh off", specs: []string{disable}, all: feature.Disable, p8080: feature.Disable, p8081: feature.Disable},
		{name: "empty", specs: []string{`{}`}},
		{name: "namespace over mesh", specs: []string{strict, permissive}},
		{name: "namespace unset", specs: []string{strict, unset}, all: feature.Strict, p8080: feature.Strict, p8081: feature.Strict},
		{name: "namespace empty", specs: []string{disable, `{}`}, all: feature.Disable, p8080: feature.Disable, p8081: feature.Disable},
		{name: "ports over namespace", specs: []string{strict, ports}, all: feature.Strict, p8080: feature.Disable, p8081: feature.Strict,
			ports: []uint32{90, 8080, 8081}},
		{name: "workload over mesh and namespace", specs: []string{disable, strict, workload}, all: feature.Permissive,
			p8080: feature.Strict, p8081: feature.Permissive, ports: []uint32{8080}},
		{name: "ports count only with a selector", specs: []string{wide}, all: feature.Strict, p8080: feature.Strict, p8081: feature.Strict},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := policies(t, c.specs...)
			for port, want := range map[uint32]feature.Mode{0: c.all, 8080: c.p8080, 8081: c.p8081} {
				if got := transport.Mode(list, port); got != want {
					t.Errorf("port %d: mode %d, want %d", port, got, want)
				}
			}
			if got := transport.Ports(list); !slices.Equal(got, c.ports) {
				t.Errorf("ports %v", got)
			}
		})
	}
}

// TestContexts: what each side offers and demands.
func TestContexts(t *testing.T) {
	m := mesh.Default()
	m.TrustDomain, m.TrustDomainAliases = "cluster.local", []string{"old"}
	for _, c := range []struct {
		http2, exchange bool
		alpn            []string
	}{
		{false, false, []string{"istio"}},
		{true, false, []string{"istio", "h2"}},
		{false, true, []string{"istio-peer-exchange", "istio"}},
		{true, true, []string{"istio-peer-exchange", "istio", "h2"}},
	} {
		up := &tlsv3.UpstreamTlsContext{}
		must.Succeed(t, transport.Upstream(feature.Upstream{SNI: "sni", Identities: []string{"spiffe://a", "spiffe://b"}, HTTP2: c.http2,
			PeerExchange: c.exchange}).GetTypedConfig().UnmarshalTo(up))
		if err := up.ValidateAll(); err != nil {
			t.Error(err)
		}
		validation := up.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext
		sans := validation.MatchSubjectAltNames //nolint:staticcheck // as on the wire
		if !slices.Equal(up.CommonTlsContext.AlpnProtocols, c.alpn) || up.Sni != "sni" || len(sans) != 2 || sans[1].GetExact() != "spiffe://b" {
			t.Errorf("%+v: %v", c, up)
		}
	}
	for _, c := range []struct {
		http, exchange bool
		alpn           []string
	}{
		{true, true, []string{"h2", "http/1.1"}},
		{true, false, []string{"h2", "http/1.1"}},
		{false, true, []string{"istio-peer-exchange", "h2", "http/1.1"}},
		{false, false, []string{"h2", "http/1.1"}},
	} {
		down := &tlsv3.DownstreamTlsContext{}
		must.Succeed(t, transport.Downstream(feature.Downstream{Mesh: m, HTTP: c.http,
			PeerExchange: c.exchange}).GetTypedConfig().UnmarshalTo(down))
		if err := down.ValidateAll(); err != nil {
			t.Error(err)
		}
		validation := down.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext
		sans := validation.MatchSubjectAltNames //nolint:staticcheck // as on the wire
		if !slices.Equal(down.CommonTlsContext.AlpnProtocols, c.alpn) || !down.RequireClientCertificate.GetValue() || len(sans) != 2 ||
			sans[1].GetPrefix() != "spiffe://old/" {
			t.Errorf("%+v: %v", c, down)
		}
	}
}

// objects is a feature.Reader of policies, those of a namespace by precedence.
type objects []*kinds.Object

func (r objects) RootNamespace() string { return "istio-system" }

func (r objects) Fact(kinds.Key) *kinds.Object { return nil }

func (r objects) ExtensionProvider(string, string) (*meshv1alpha1.MeshConfig_ExtensionProvider, *registry.Service) {
	return nil, nil
}

func (r objects) DefaultProviders() *meshv1alpha1.MeshConfig_DefaultProviders { return nil }

func (r objects) Objects(kind *kinds.Kind, namespace string) (list []*kinds.Object) {
	for _, o := range r {
		if o.Kind == kind && o.Namespace == namespace {
			list = append(list, o)
		}
	}
	return list
}

// TestSelect: at most one policy of the mesh, one of the namespace and one that selects the workload apply.
func TestSelect(t *testing.T) {
	policy := func(namespace, name, spec string) *kinds.Object {
		o := slices.Collect(policies(t, spec).Objects.All)[0]
		o.Key = kinds.Key{Kind: kinds.PeerAuthentication, Namespace: namespace, Name: name}
		return o
	}
	const web = `{"selector":{"matchLabels":{"app":"web"}}}`
	root, own, second := policy("istio-system", "root", `{}`), policy("a", "own", `{}`), policy("a", "second", `{}`)
	picky, picky2 := policy("a", "picky", web), policy("a", "picky2", web)
	r := objects{root, own, second, picky, picky2}
	for _, c := range []struct {
		ns, app string
		typ     node.Type
		want    []*kinds.Object
	}{
		{"a", "web", node.Sidecar, []*kinds.Object{root, own, picky}},
		{"a", "api", node.Sidecar, []*kinds.Object{root, own}},
		{"b", "web", node.Sidecar, []*kinds.Object{root}},
		{"istio-system", "web", node.Sidecar, []*kinds.Object{root}},
		{"a", "web", node.Router, nil},
	} {
		got := mtls.New(false, false).Select(r, c.ns)(feature.Workload{
			Type: c.typ, Labels: registry.Labels{Own: map[string]string{"app": c.app}},
		})
		if !slices.Equal(slices.Collect(got.Objects.All), c.want) {
			t.Errorf("%s %s %s: %v", c.typ, c.ns, c.app, got)
		}
	}
}

// reader has the policies of some namespaces. The root namespace is istio-system.
type reader struct {
	feature.Reader
	objects map[string][]*kinds.Object
}

func (r reader) RootNamespace() string { return "istio-system" }

func (r reader) Objects(_ *kinds.Kind, namespace string) []*kinds.Object { return r.objects[namespace] }

// TestSelectorInTheRootNamespace: there a policy with a selector counts for nobody, neither in the root namespace nor
// elsewhere, whatever it says. Each row is what istiod sent a proxy with the label.
func TestSelectorInTheRootNamespace(t *testing.T) {
	const (
		strict, disable = `{"mtls":{"mode":"STRICT"}}`, `{"mtls":{"mode":"DISABLE"}}`
		selects         = `{"selector":{"matchLabels":{"app":"web"}},`
		webStrict       = selects + `"mtls":{"mode":"STRICT"}}`
		webPermissive   = selects + `"mtls":{"mode":"PERMISSIVE"}}`
		webDisable      = selects + `"mtls":{"mode":"DISABLE"}}`
		webPorts        = selects + `"mtls":{"mode":"STRICT"},"portLevelMtls":{"8080":{"mode":"DISABLE"}}}`
	)
	for _, c := range []struct {
		name      string
		root, own []string
		of        string // the namespace of the workload
		want      feature.Mode
	}{
		{"the mesh is strict, the selected are permissive", []string{strict, webPermissive}, nil, "a", feature.Strict},
		{"the mesh is strict, the selected are disabled", []string{webDisable, strict}, nil, "a", feature.Strict},
		{"the selected are strict", []string{webStrict}, nil, "a", feature.Permissive},
		{"the namespace is strict", []string{webDisable}, []string{strict}, "a", feature.Strict},
		{"the namespace is disabled", []string{webStrict}, []string{disable}, "a", feature.Disable},
		{"selected in both", []string{webStrict}, []string{webDisable}, "a", feature.Disable},
		{"ports", []string{webPorts}, nil, "a", feature.Permissive},
		{"in the root namespace, disabled", []string{strict, webDisable}, nil, "istio-system", feature.Strict},
		{"in the root namespace, strict", []string{webStrict}, nil, "istio-system", feature.Permissive},
		{"in the root namespace, ports", []string{webPorts}, nil, "istio-system", feature.Permissive},
	} {
		list := func(specs []string) (list []*kinds.Object) {
			for o := range policies(t, specs...).Objects.All {
				list = append(list, o)
			}
			return list
		}
		r := reader{objects: map[string][]*kinds.Object{"istio-system": list(c.root)}}
		if c.own != nil {
			r.objects[c.of] = list(c.own)
		}
		s := mtls.New(false, false).Select(r, c.of)(feature.Workload{
			Type: node.Sidecar, Labels: registry.Labels{Own: map[string]string{"app": "web"}},
		})
		for _, port := range []uint32{0, 8080} {
			if got := transport.Mode(s, port); got != c.want {
				t.Errorf("%s: port %d: %v, want %v", c.name, port, got, c.want)
			}
		}
	}
}
