package bootstrap

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// TestPushesAsData: /debug/pushes says what caused a push, with file and line, how long its stages took and what was
// sent; a rejection is traced to the objects that the rejected resource is made of. A request that watches returns with
// the next push.
func TestPushesAsData(t *testing.T) {
	o := testOptions(t)
	const routes = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{headers: {response: {set: {x: VALUE}}}, route: [{destination: {host: web}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: other, namespace: a}
spec:
  hosts: [other.example]
  http: [{route: [{destination: {host: web}}]}]
`
	write(t, filepath.Join(o.ConfigDir, "routes.yaml"), strings.ReplaceAll(routes, "VALUE", "one"))
	s := started(t, o)
	page := func(query string) (p pushes.Page) {
		t.Helper()
		_, text := fetch(t, s.Addresses().Monitoring, "/debug/pushes"+query)
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err, text)
		}
		return p
	}
	first := page("")
	if n := len(first.Pushes); n != 1 || first.Newest != first.Pushes[0].ID || len(first.Pushes[0].Causes) < 2 {
		t.Fatalf("the first load: %+v", first)
	}

	stream := subscribe(t, s.Addresses().GRPC)
	if !clusters(t, stream, "web.a.svc.cluster.local") {
		t.Fatal("no cluster")
	}
	send := func(r *discoveryv3.DiscoveryRequest) {
		t.Helper()
		must.Succeed(t, stream.Send(r))
	}
	receive := func() *discoveryv3.DiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		must.Succeed(t, err)
		return r
	}
	send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}})
	r := receive()
	send(&discoveryv3.DiscoveryRequest{
		TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce,
	})

	watched := make(chan string, 1)
	go func() {
		_, text := fetch(t, s.Addresses().Monitoring, "/debug/pushes?watch&since="+jsonNumber(first.Newest))
		watched <- text
	}()
	write(t, filepath.Join(o.ConfigDir, "routes.yaml"), "# moved down\n"+strings.ReplaceAll(routes, "VALUE", "two"))
	r = receive()
	if r.TypeUrl != envoy.RouteType {
		t.Fatalf("a response of type %s", r.TypeUrl)
	}
	send(&discoveryv3.DiscoveryRequest{
		TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}, ResponseNonce: r.Nonce,
		ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no such header"},
	})
	if text := <-watched; !strings.Contains(text, `routes.yaml:2:1"`) {
		t.Errorf("the watch returned %s", text)
	}
	var p pushes.Push
	eventually(t, "the push was rejected", func() bool {
		for _, p = range page("?since=" + jsonNumber(first.Newest)).Pushes {
			if p.Rejected == 1 {
				return true
			}
		}
		return false
	})
	if p.Proxies != 1 || p.Pending != 0 || p.Bytes == 0 || len(p.Types) != 1 ||
		p.Types[0].Type != "rds" || p.Stages.LastAck == nil || p.Stages.Throttle <= 0 {
		t.Errorf("push %+v", p)
	}
	has := func(list []pushes.Object, name, position string) bool {
		for _, o := range list {
			if o.Kind == "VirtualService" && o.Namespace == "a" && o.Name == name && strings.HasSuffix(o.Position, position) {
				return true
			}
		}
		return false
	}
	if !has(p.Causes, "web", "routes.yaml:2:1") {
		t.Errorf("causes %+v", p.Causes)
	}
	if len(p.Rejections) != 1 || p.Rejections[0].Message != "no such header" || p.Rejections[0].Proxy != "web-1.a" {
		t.Fatalf("rejections %+v", p.Rejections)
	}
	if !has(p.Rejections[0].Sources, "web", "routes.yaml:2:1") {
		t.Errorf("it is made of %+v", p.Rejections[0].Sources)
	}
	if code, _ := fetch(t, s.Addresses().Monitoring, "/debug/pushes?since=x"); code != 400 {
		t.Errorf("a wrong query: %d", code)
	}
}

func jsonNumber(n uint64) string {
	text, _ := json.Marshal(n)
	return string(text)
}
