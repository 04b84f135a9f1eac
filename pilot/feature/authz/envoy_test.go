package authz_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	header2metadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	echov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/echo/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// How many sets of policies an Envoy has, and how many requests it decides about by each.
const (
	envoySets     = 40
	envoyRequests = 15
)

// programs are the Envoys, by their version.
var programs = map[string]program{"newest": {"ENVOY", "envoy"}, "oldest": {"ENVOY_OLDEST", "envoy-1.37"}}

// program is one that the environment may name.
type program struct{ variable, tool string }

func (p program) path() string {
	if path := os.Getenv(p.variable); path != "" {
		return path
	}
	return filepath.Join("../../../.tools", p.tool)
}

// TestEnvoysDecide has real Envoys, of the newest and of the oldest version, decide about requests that are drawn with
// their policies. They decide as the documentation of AuthorizationPolicy says, and as the evaluator of TestDecisions.
func TestEnvoysDecide(t *testing.T) {
	seed, _ := histories.Seed(t)
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			outcomes := map[string]int{}
			inEachMesh(t, func(t *testing.T, m *mesh.Config) { testEnvoyDecides(t, seed, program, m, outcomes) })
			t.Log(outcomes)
			// Requests and connections are both allowed and denied. A few seeds have no request that an authorizer decides.
			if len(outcomes) < 4 {
				t.Errorf("only these: %v", outcomes)
			}
		})
	}
}

// testEnvoyDecides counts in outcomes what an Envoy decides.
func testEnvoyDecides(t *testing.T, seed uint64, program program, m *mesh.Config, outcomes map[string]int) {
	draw := rapid.Custom(func(t *rapid.T) []*kinds.Object { return drawPolicies(t) })
	var all [][]*kinds.Object
	for i := range envoySets {
		all = append(all, draw.Example(int(seed)+i))
	}
	p := startEnvoy(t, program.path(), m, all)
	o, e := oracle{domains: m.TrustDomains()}, &evaluator{regexes: map[string]*regexp.Regexp{}}
	d := dice{rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // nothing is secret
	for i, policies := range all {
		filters := map[bool][]stage{true: filtersOf(m, policies, true), false: filtersOf(m, policies, false)}
		for range envoyRequests {
			r := d.request()
			real(r)
			want, got := o.decide(policies, r), p.decide(t, i, r)
			if !r.http {
				want.asked, got.asked = false, false
			}
			if evaluated := e.decide(filters[r.http], r); got != want || r.http && got != evaluated {
				t.Fatalf("%+v\nis %+v, want %+v and %+v, by\n%s", *r, got, want, evaluated, show(policies))
			}
			outcomes[fmt.Sprintf("HTTP %v, %+v", r.http, got)]++
		}
	}
}

// real makes a request one that a client on loopback can make.
func real(r *request) {
	if !r.source.IsLoopback() || r.source.Is6() {
		r.source = netip.MustParseAddr("127.0.0.1")
	}
	if r.remote.Is4() != r.destination.Is4() {
		r.destination = r.remote
	}
	if r.domain == "" {
		r.sni = "" // nobody says it over plaintext
	}
	if !r.http {
		r.says = nil
	}
}

// running is an Envoy with the filters of sets of policies: for requests in one listener, by the header x-case, and for
// connections in a listener each.
type running struct {
	addresses map[string]string // of listeners
	ca        *pki.Bundle
	own       map[string]tls.Certificate
}

func startEnvoy(t *testing.T, program string, m *mesh.Config, all [][]*kinds.Object) *running {
	t.Helper()
	ca, err := pki.NewSelfSigned("cluster.local", time.Hour, time.Now())
	must.Succeed(t, err)
	p := &running{addresses: map[string]string{}, ca: ca, own: map[string]tls.Certificate{}}
	b := &bootstrapv3.Bootstrap{
		Admin:           &bootstrapv3.Admin{Address: address()},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{p.listener(t, "http", requestFilters(m, all))}},
	}
	for i, policies := range all {
		var filters []*listenerv3.Filter
		for _, f := range hooksOf(m, policies, false) {
			filters = append(filters, f.Hooks.NetworkFilters(f.chain)...)
		}
		filters = withoutAuthorizers(filters)
		filters = append(filters, networkFilter("envoy.filters.network.echo", &echov3.Echo{}))
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, p.listener(t, fmt.Sprint("tcp-", i), filters))
	}
	dir := t.TempDir()
	text, err := protojson.Marshal(b)
	must.Succeed(t, err)
	config, admin := filepath.Join(dir, "envoy.json"), filepath.Join(dir, "admin")
	must.Succeed(t, os.WriteFile(config, text, 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	must.Succeed(t, err)
	defer log.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program, "-c", config, "--admin-address-path", admin, "--concurrency", "1",
		"--use-dynamic-base-id", "-l", "error")
	cmd.Stdout, cmd.Stderr = log, log
	must.Succeed(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	for len(p.addresses) != len(all)+1 {
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("Envoy ended: %s", said)
		case <-time.After(20 * time.Millisecond):
		}
		at, err := os.ReadFile(admin)
		if err != nil {
			continue
		}
		resp, err := http.Get("http://" + string(at) + "/listeners?format=json")
		if err != nil {
			continue
		}
		var page struct {
			Statuses []struct {
				Name    string `json:"name"`
				Address struct {
					Socket struct {
						Address string `json:"address"`
						Port    int    `json:"port_value"`
					} `json:"socket_address"`
				} `json:"local_address"`
			} `json:"listener_statuses"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil {
			continue
		}
		for _, l := range page.Statuses {
			if l.Address.Socket.Port > 0 {
				p.addresses[l.Name] = net.JoinHostPort(l.Address.Socket.Address, strconv.Itoa(l.Address.Socket.Port))
			}
		}
	}
	return p
}

func address() *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1",
		PortSpecifier: &corev3.SocketAddress_PortValue{}}}}
}

func networkFilter(name string, m proto.Message) *listenerv3.Filter {
	return envoy.NetworkFilter(name, envoy.Any(m))
}

// withoutAuthorizers leaves out the filters that ask: what is noted before them is enough to see who is asked.
func withoutAuthorizers(filters []*listenerv3.Filter) []*listenerv3.Filter {
	var list []*listenerv3.Filter
	for _, f := range filters {
		if !strings.HasSuffix(f.Name, ".ext_authz") {
			list = append(list, f)
		}
	}
	return list
}

// listener returns a listener that takes connections with and without TLS, which begin with a header of the PROXY
// protocol: it says from and to which address they are.
func (p *running) listener(t *testing.T, name string, filters []*listenerv3.Filter) *listenerv3.Listener {
	t.Helper()
	files, err := p.ca.Encode()
	must.Succeed(t, err)
	chain, key := p.certificate(t, "spiffe://cluster.local/ns/a/sa/server")
	text := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	secure := &tlsv3.DownstreamTlsContext{
		RequireClientCertificate: envoy.Bool(true),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: text(chain), PrivateKey: text(key)}},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: text(files.Roots)},
			},
		},
	}
	inspect := func(name string, m proto.Message) *listenerv3.ListenerFilter {
		return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: envoy.Any(m)}}
	}
	return &listenerv3.Listener{
		Name: name, Address: address(),
		ListenerFilters: []*listenerv3.ListenerFilter{
			inspect("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}),
			inspect("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{}),
		},
		FilterChains: []*listenerv3.FilterChain{
			{
				Name: "tls", Filters: filters, FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "tls"},
				TransportSocket: &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
					ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(secure)}},
			},
			{Name: "plaintext", Filters: filters, FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}},
		},
	}
}

// certificate returns the chain and the key of a certificate.
func (p *running) certificate(t *testing.T, uri string) (chain, key []byte) {
	t.Helper()
	private, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, _, err := p.ca.Sign(pki.Leaf{URI: uri, Key: private.Public(), TTL: time.Hour}, time.Now())
	must.Succeed(t, err)
	if key, err = pki.EncodeKey(private); err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificate(der), key
}

// What a listener reads and answers beside what is judged.
const (
	caseHeader, claimsHeader, saysHeader, notedHeader = "x-case", "x-claims", "x-says", "x-noted"

	perCase = 4 // the filters of policies of one case, at most
)

// everyAnswer is the condition of what is added to answers of Envoy's own.
var everyAnswer = &accesslogv3.AccessLogFilter{
	FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{StatusCodeFilter: &accesslogv3.StatusCodeFilter{
		Comparison: &accesslogv3.ComparisonFilter{Op: accesslogv3.ComparisonFilter_GE,
			Value: &corev3.RuntimeUInt32{DefaultValue: 100, RuntimeKey: "none"}},
	}},
}

// requestFilters returns a connection manager whose routes have the filters of a set of policies each.
func requestFilters(m *mesh.Config, all [][]*kinds.Object) []*listenerv3.Filter {
	noted := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: notedHeader,
		Value: "%DYNAMIC_METADATA(envoy.filters.http.rbac:istio_ext_authz_shadow_effective_policy_id)%"}}}
	host := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	for i, policies := range all {
		r := &routev3.Route{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}, Headers: []*routev3.HeaderMatcher{{
				Name: caseHeader, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
					StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: strconv.Itoa(i)}},
				},
			}}},
			Action:               &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusOK}},
			TypedPerFilterConfig: map[string]*anypb.Any{},
		}
		n := 0
		for _, f := range hooksOf(m, policies, true) {
			for _, one := range f.Hooks.HTTPFilters(f.chain) {
				rules := &httprbacv3.RBAC{}
				if one.GetTypedConfig().UnmarshalTo(rules) == nil {
					r.TypedPerFilterConfig[fmt.Sprint("rbac-", n)] = envoy.Any(&httprbacv3.RBACPerRoute{Rbac: rules})
					n++
				}
			}
		}
		host.Routes = append(host.Routes, r)
	}
	values := func(header, namespace, key string) *header2metadatav3.Config_Rule {
		return &header2metadatav3.Config_Rule{Header: header, Remove: true, OnHeaderPresent: &header2metadatav3.Config_KeyValuePair{
			MetadataNamespace: namespace, Key: key, Type: header2metadatav3.Config_PROTOBUF_VALUE, Encode: header2metadatav3.Config_BASE64,
		}}
	}
	filters := []*hcmv3.HttpFilter{envoy.HTTPFilter("envoy.filters.http.header_to_metadata",
		envoy.Any(&header2metadatav3.Config{RequestRules: []*header2metadatav3.Config_Rule{
			values(claimsHeader, "envoy.filters.http.jwt_authn", "payload"), values(saysHeader, filter, "saying"),
		}}))}
	for n := range perCase {
		filters = append(filters, envoy.HTTPFilter(fmt.Sprint("rbac-", n), envoy.Any(&httprbacv3.RBAC{})))
	}
	return []*listenerv3.Filter{networkFilter("envoy.filters.network.http_connection_manager", &hcmv3.HttpConnectionManager{
		StatPrefix: "http",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{
			RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{host}},
		},
		HttpFilters:      append(filters, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{}))),
		LocalReplyConfig: &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{Filter: everyAnswer, HeadersToAdd: noted}}},
		UseRemoteAddress: envoy.Bool(true),
	})}
}

// decide makes a request under a set of policies, and returns what becomes of it.
func (p *running) decide(t *testing.T, set int, r *request) verdict {
	t.Helper()
	name := "http"
	if !r.http {
		name = fmt.Sprint("tcp-", set)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: r.source.AsSlice()}}
	conn, err := dialer.DialContext(t.Context(), "tcp", p.addresses[name])
	must.Succeed(t, err)
	defer conn.Close()
	family := "TCP4"
	if r.remote.Is6() {
		family = "TCP6"
	}
	if _, err := fmt.Fprintf(conn, "PROXY %s %s %s %d %d\r\n", family, r.remote, r.destination, 40000, r.port); err != nil {
		t.Fatal(err)
	}
	if r.domain != "" {
		conn = tls.Client(conn, p.identity(t, r))
	}
	if !r.http {
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return verdict{}
		}
		said, err := bufio.NewReader(conn).ReadString('\n')
		return verdict{allowed: err == nil && said == "hello\n"}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n%s: %d\r\nContent-Length: 0\r\nConnection: close\r\n", r.method, r.path, r.host,
		caseHeader, set)
	for k, v := range r.headers {
		fmt.Fprintf(&text, "%s: %s\r\n", k, v)
	}
	if r.claims != nil {
		fmt.Fprintf(&text, "%s: %s\r\n", claimsHeader, encoded(t, r.claims))
	}
	if v, ok := r.says["saying"]; ok {
		fmt.Fprintf(&text, "%s: %s\r\n", saysHeader, encoded(t, v))
	}
	if _, err := io.WriteString(conn, text.String()+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%+v: %v", *r, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusForbidden {
		t.Fatalf("%+v: %s", *r, answer.Status)
	}
	return verdict{allowed: answer.StatusCode == http.StatusOK,
		asked: strings.HasPrefix(answer.Header.Get(notedHeader), "istio-ext-authz-"+provider.Name)}
}

// encoded returns a value as header_to_metadata reads it.
func encoded(t *testing.T, v any) string {
	t.Helper()
	m, err := structpb.NewValue(v)
	must.Succeed(t, err)
	b, err := proto.Marshal(m)
	must.Succeed(t, err)
	return base64.StdEncoding.EncodeToString(b)
}

// identity returns the TLS configuration of a peer.
func (p *running) identity(t *testing.T, r *request) *tls.Config {
	t.Helper()
	name := "spiffe://" + r.principal()
	own, ok := p.own[name]
	if !ok {
		chain, key := p.certificate(t, name)
		var err error
		if own, err = tls.X509KeyPair(chain, key); err != nil {
			t.Fatal(err)
		}
		p.own[name] = own
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ServerName: r.sni,
		InsecureSkipVerify: true} //nolint:gosec // who the server is does not matter
}

// TestEnvoysTakeWhatIsAccepted draws policies with texts that mean something elsewhere. Real Envoys start with all
// those that validation accepts: one that they could not read would keep every other policy from them.
func TestEnvoysTakeWhatIsAccepted(t *testing.T) {
	seed, _ := histories.Seed(t)
	draw := rapid.Custom(drawUgly)
	var all [][]*kinds.Object
	for i := 0; len(all) < 300; i++ {
		p := draw.Example(int(seed) + i) //nolint:gosec // a seed may be any number
		meta := validation.Metadata{Namespace: p.Namespace, Name: p.Name}
		doc := validation.Message(limits.Default(), kinds.AuthorizationPolicy, meta, p.Spec.(*securityv1.AuthorizationPolicy))
		if doc.Object != nil {
			all = append(all, []*kinds.Object{doc.Object})
		} else if i > 100*len(all)+1000 {
			t.Fatalf("nothing is accepted: %v", doc.Findings)
		}
	}
	startEnvoy(t, programs["newest"].path(), mesh.Default(), all)
}
