package virtualservice

import (
	"bytes"
	"math"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// terminal are Destinations that all exist, each with a hash policy.
type terminal struct{}

func (terminal) Cluster(host, subset string, port uint32) string {
	return names.Cluster(names.Outbound, port, subset, host)
}

func (terminal) Hash(names.ClusterName) []*routev3.RouteAction_HashPolicy {
	return []*routev3.RouteAction_HashPolicy{{Terminal: true}}
}

// FuzzHTTPRoutes: whatever a VirtualService holds, its translation ends, is deterministic and changes nothing, and only
// the last route may be a catch-all.
func FuzzHTTPRoutes(f *testing.F) {
	for _, spec := range []string{
		`{"http": [{"match": [{"uri": {"prefix": "/"}, "headers": {"a": {}, "b": {"regex": "*"}}}], "route": [{}]}, {"redirect": {}}]}`,
		`{"http": [{"fault": {"delay": {"fixedDelay": "1s"}, "abort": {"httpStatus": 1}}, ` +
			`"corsPolicy": {}, "mirrors": [{}], "retries": {"attempts": -1}}]}`,
		`{"http": [{"match": [{"port": 81}], "route": [{"destination": {"host": "web"}, "weight": 0}, {"weight": 0}]}]}`,
	} {
		v := &networkingv1.VirtualService{}
		if err := protojson.Unmarshal([]byte(spec), v); err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(v)
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
		before := proto.Clone(spec)
		root := &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "x"}, Spec: spec}
		routes := func() []*routev3.Route {
			o := scope.ResolveDelegates(root, "cluster.local", math.MaxInt, func(string, string) *kinds.Object {
				return &kinds.Object{Key: root.Key, Spec: &networkingv1.VirtualService{Http: spec.Http}}
			})
			x := feature.RouteOptions{
				Object: o, Port: 80, Gateway: "mesh", Domain: "cluster.local",
				Destinations: terminal{},
			}
			list := virtualServices{}.HTTP(x)
			if (virtualServices{}).Any(x) != (len(list) > 0) {
				t.Fatalf("%d routes, any: %t", len(list), virtualServices{}.Any(x))
			}
			return list
		}
		first := routes()
		for i, r := range first {
			if catchAll(r) && i < len(first)-1 {
				t.Fatalf("route %d of %d takes everything", i, len(first))
			}
		}
		encode := func(list []*routev3.Route) []byte {
			return envoy.NewResource("", &routev3.VirtualHost{Routes: list}).Body
		}
		if !bytes.Equal(encode(first), encode(routes())) {
			t.Fatal("the same input gives other bytes")
		}
		if !proto.Equal(before, spec) {
			t.Fatal("the VirtualService was changed")
		}
	})
}
