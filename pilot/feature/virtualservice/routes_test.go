package virtualservice

import (
	"bytes"
	"math"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

func TestNothingApplies(t *testing.T) {
	o := object(t, []byte("metadata: {name: x, namespace: a}\nspec: {http: [{match: [{port: 81}], route: [{destination: {host: web}}]}]}"))
	for port, want := range map[uint32]int{80: 0, 81: 1} {
		x := proxy{Port: port}.options(t, o)
		if got := HTTPRoutes(x); len(got) != want || HasRoutes(x) != (want > 0) {
			t.Errorf("port %d: got %v, any: %t", port, got, HasRoutes(x))
		}
	}
}

func TestJoin(t *testing.T) {
	list := func(paths ...string) (out []*routev3.Route) {
		for _, p := range paths {
			path, name, _ := strings.Cut(p, " ")
			out = append(out, &routev3.Route{Name: name, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path}}})
		}
		return out
	}
	var got []string
	for _, r := range Join(list("/a one", "/ one"), list("/b two", "/ two"), nil, list("/a three")) {
		got = append(got, r.GetMatch().GetPrefix()+" "+r.Name)
	}
	if d := cmp.Diff([]string{"/a one", "/b two", "/a three", "/ one"}, got); d != "" {
		t.Error(d)
	}
	if got := Join(nil, nil); got != nil {
		t.Error(got)
	}
}

func TestDefaults(t *testing.T) {
	inbound := func(grpc bool) string {
		return string(text(t, []*routev3.Route{InboundRoute("inbound|8080||", "web.a", 80, grpc)}))
	}
	if got := inbound(false); !strings.Contains(got, `"retryOn": "reset-before-request"`) || !strings.Contains(got, `"operation": "web.a:80/*"`) || strings.Contains(got, "maxGrpcTimeout") {
		t.Error(got)
	}
	if got := inbound(true); strings.Contains(got, "retry") || !strings.Contains(got, `"grpcTimeoutHeaderMax": "0s"`) {
		t.Error(got)
	}
	out := DefaultRoute("outbound|80||web.a", "web.a", 80, nil, DefaultRetry(nil))
	if got := string(text(t, []*routev3.Route{out})); !strings.Contains(got, `"numRetries": 2`) || !strings.Contains(got, `"maxGrpcTimeout": "0s"`) || !CatchAll(out) {
		t.Error(got)
	}
	for _, h := range []*routev3.VirtualHost{AllowAny("PassthroughCluster", true), BlockAll(false)} {
		if err := h.ValidateAll(); err != nil {
			t.Error(err)
		}
		if h.Name != h.Routes[0].Name || h.Domains[0] != "*" {
			t.Error(h)
		}
	}
	if AllowAny("p", true).Routes[0].GetRoute().GetRetryPolicy() != nil || BlockAll(true).Routes[0].GetDirectResponse().GetStatus() != 502 {
		t.Error("the last virtual host")
	}
}

// FuzzHTTPRoutes: whatever a VirtualService holds, its translation ends and is deterministic, and only the last route
// may be a catch-all.
func FuzzHTTPRoutes(f *testing.F) {
	for _, doc := range []string{
		"metadata: {}\nspec: {http: [{match: [{uri: {prefix: /}, headers: {a: {}}}], route: [{}]}, {redirect: {}}]}",
		"metadata: {}\nspec: {http: [{fault: {delay: {fixedDelay: 1s}, abort: {httpStatus: 1}}, corsPolicy: {}, mirrors: [{}], retries: {attempts: -1}}]}",
	} {
		b, err := proto.Marshal(object(&testing.T{}, []byte(doc)).Spec.(proto.Message))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		spec := &networkingv1.VirtualService{}
		if proto.Unmarshal(b, spec) != nil {
			return
		}
		root := &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "x"}, Spec: spec}
		routes := func() []*routev3.Route {
			o := scope.ResolveDelegates(root, "cluster.local", math.MaxInt, func(string, string) *kinds.Object {
				return &kinds.Object{Key: root.Key, Spec: &networkingv1.VirtualService{Http: spec.Http}}
			})
			x := proxy{Port: 80, Hash: []string{"web"}}.options(t, o)
			list := HTTPRoutes(x)
			if HasRoutes(x) != (len(list) > 0) {
				t.Fatalf("%d routes, any: %t", len(list), HasRoutes(x))
			}
			return list
		}
		first := routes()
		for i, r := range first {
			if CatchAll(r) && i < len(first)-1 {
				t.Fatalf("route %d of %d takes everything", i, len(first))
			}
		}
		if !bytes.Equal(encode(first), encode(routes())) {
			t.Fatal("the same input gives other bytes")
		}
	})
}
