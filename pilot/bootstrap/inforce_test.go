package bootstrap

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// TestInForce: a client takes clusters and routes by hand. The page says "in force" exactly when it has acknowledged
// them, for a change, a rejection, an object with an error, and a deletion. The history has all that was in force.
func TestInForce(t *testing.T) {
	o := testOptions(t)
	file := filepath.Join(o.ConfigDir, "routes.yaml")
	const routes = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{headers: {response: {set: {x: VALUE}}}, route: [{destination: {host: web}}]}]
`
	put := func(value string) { t.Helper(); write(t, file, strings.ReplaceAll(routes, "VALUE", value)) }
	put("one")
	s := started(t, o)
	page := func(name, query string, into any) {
		t.Helper()
		code, text := fetch(t, s.Addresses().Monitoring, "/debug/"+name+"?object=VirtualService/web.a&"+query)
		if err := json.Unmarshal([]byte(text), into); code != 200 || err != nil {
			t.Fatal(code, err, text)
		}
	}
	ask := func(query string) (a progress.Answer) {
		t.Helper()
		page("inforce", query, &a)
		return a
	}
	// reads waits until the server has committed another version than the last one.
	last := ""
	reads := func() progress.Answer {
		t.Helper()
		var a progress.Answer
		eventually(t, "another version is read", func() bool {
			a = ask("")
			return a.Version != last && a.Version != "" || a.Deleted
		})
		last = a.Version
		return a
	}
	if a := reads(); a.State != progress.Unknown || !strings.HasPrefix(a.Why, "no proxy has connected yet") {
		t.Errorf("without proxies: %+v", a)
	}

	stream := subscribe(t, s.Addresses().GRPC)
	if !clusters(t, stream, "web.a.svc.cluster.local") {
		t.Fatal("no cluster")
	}
	receive := func() *discoveryv3.DiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		must.Succeed(t, err)
		if r.TypeUrl != envoy.RouteType {
			t.Fatalf("a response of type %s", r.TypeUrl)
		}
		return r
	}
	answer := func(r *discoveryv3.DiscoveryResponse, rejection string) {
		t.Helper()
		q := &discoveryv3.DiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}, ResponseNonce: r.Nonce}
		q.VersionInfo = r.VersionInfo
		if rejection != "" {
			q.VersionInfo, q.ErrorDetail = "", &rpcstatus.Status{Code: 13, Message: rejection}
		}
		must.Succeed(t, stream.Send(q))
	}
	must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}}))
	answer(receive(), "")
	final := func(query string, want progress.State) progress.Answer {
		t.Helper()
		var a progress.Answer
		eventually(t, "the state is "+string(want), func() bool {
			a = ask(query)
			return a.State == want
		})
		return a
	}
	final("", progress.InForce)
	first := last

	put("two")
	r := receive()
	if a := reads(); a.State != progress.Behind || len(a.Owing) != 1 || a.Owing[0].Proxy != "web-1.a" || a.Proxies.Concerned != 1 {
		t.Errorf("before the client answers: %+v", a)
	}
	second := last
	if a := ask("version=" + first); a.State != progress.Superseded {
		t.Errorf("the version before: %+v", a)
	}
	answer(r, "")
	if a := final("version="+url.QueryEscape(second), progress.InForce); a.Proxies.InForce != 1 || len(a.Owing) > 0 {
		t.Errorf("acknowledged: %+v", a)
	}

	put("three")
	answer(receive(), "no such header")
	if a := final("", progress.Rejected); a.Owing[0].Message != "no such header" || a.Owing[0].Type != "rds" {
		t.Errorf("rejected: %+v", a)
	}
	last = ask("").Version

	write(t, file, strings.ReplaceAll(routes, "hosts: [web]", "hosts: 7"))
	if a := final("", progress.Invalid); len(a.Findings) == 0 {
		t.Errorf("with an error: %+v", a)
	}
	put("four")
	answer(receive(), "")
	final("", progress.InForce)
	write(t, file, "spec: [")
	if a := final("", progress.Invalid); len(a.Findings) == 0 || a.Position == "" {
		t.Errorf("in a file that cannot be parsed: %+v", a)
	}

	must.Succeed(t, os.Remove(file))
	r = receive()
	if a := final("", progress.Behind); !a.Deleted {
		t.Errorf("deleted: %+v", a)
	}
	answer(r, "")
	final("deleted", progress.InForce)
	final("version="+second, progress.Superseded)

	var h progress.History
	eventually(t, "the history is complete", func() bool {
		h = progress.History{}
		page("history", "", &h)
		return len(h.Versions) >= 5 && h.Versions[0].Took != nil
	})
	if v := h.Versions[0]; !v.Deleted || v.Proxies != 1 || !strings.Contains(v.Restore, "x: four") {
		t.Errorf("the deletion: %+v", v)
	}
	if v := h.Versions[len(h.Versions)-2]; v.Version != second || v.Proxies != 1 || v.Took == nil || !strings.Contains(v.Restore, "x: one") ||
		!strings.Contains(v.Restore, "routes.yaml:1:1") {
		t.Errorf("the first change: %+v", v)
	}
}

// TestRejectedAfterARestart: a client rejects a version, leaves, starts again and rejects it again. The version is
// never in force meanwhile, and the history does not say that a proxy had it.
func TestRejectedAfterARestart(t *testing.T) {
	o := testOptions(t)
	put := func(value string) {
		t.Helper()
		write(t, filepath.Join(o.ConfigDir, "routes.yaml"), `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{headers: {response: {set: {x: `+value+`}}}, route: [{destination: {host: web}}]}]
`)
	}
	put("one")
	s := started(t, o)
	page := func(name string, into any) {
		t.Helper()
		code, text := fetch(t, s.Addresses().Monitoring, "/debug/"+name+"?object=VirtualService/web.a")
		if err := json.Unmarshal([]byte(text), into); code != 200 || err != nil {
			t.Fatal(code, err, text)
		}
	}
	becomes := func(want progress.State) (a progress.Answer) {
		t.Helper()
		eventually(t, "the state is "+string(want), func() bool {
			a = progress.Answer{}
			page("inforce", &a)
			return a.State == want
		})
		return a
	}
	connect := func() discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
		t.Helper()
		stream := subscribe(t, s.Addresses().GRPC)
		clusters(t, stream, "web.a.svc.cluster.local")
		must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}}))
		return stream
	}
	answer := func(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, rejection string) {
		t.Helper()
		r, err := stream.Recv()
		must.Succeed(t, err)
		q := &discoveryv3.DiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNames: []string{"80"}, ResponseNonce: r.Nonce}
		if rejection != "" {
			q.ErrorDetail = &rpcstatus.Status{Code: 13, Message: rejection}
		} else {
			q.VersionInfo = r.VersionInfo
		}
		must.Succeed(t, stream.Send(q))
	}
	stream := connect()
	answer(stream, "")
	becomes(progress.InForce)
	put("two")
	answer(stream, "no")
	becomes(progress.Rejected)
	must.Succeed(t, stream.CloseSend())
	becomes(progress.Behind)
	stream = connect()
	for range 10 {
		var a progress.Answer
		if page("inforce", &a); a.State != progress.Behind {
			t.Fatalf("it has started again, and has not answered: %+v", a)
		}
	}
	answer(stream, "still not")
	if a := becomes(progress.Rejected); len(a.Owing) != 1 || a.Owing[0].Message != "still not" {
		t.Errorf("it rejects it again: %+v", a)
	}
	var h progress.History
	if page("history", &h); len(h.Versions) == 0 || h.Versions[0].Took != nil {
		t.Errorf("the history: %+v", h.Versions)
	}
	put("three")
	answer(stream, "")
	becomes(progress.InForce)
}

// TestInForceLater: a route that no connected client asks for has no effect until another client connects, whose first
// configuration may have the route. If a finding says that an object reaches no proxy, it never has an effect.
func TestInForceLater(t *testing.T) {
	o := testOptions(t)
	const near = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: near, namespace: istio-sytem}\n"
	write(t, filepath.Join(o.ConfigDir, "near.yaml"), near)
	s := started(t, o)
	becomes := func(object string, want progress.State, why string) (a progress.Answer) {
		t.Helper()
		eventually(t, object+" is "+string(want), func() bool {
			a = progress.Answer{}
			code, text := fetch(t, s.Addresses().Monitoring, "/debug/inforce?object="+object)
			if err := json.Unmarshal([]byte(text), &a); code != 200 || err != nil {
				t.Fatal(code, err, text)
			}
			return a.State == want && strings.Contains(a.Why, why)
		})
		return a
	}
	connect := func() {
		t.Helper()
		if !clusters(t, subscribe(t, s.Addresses().GRPC), "web.a.svc.cluster.local") {
			t.Fatal("no cluster")
		}
	}
	connect()
	if a := becomes("PeerAuthentication/near.istio-sytem", progress.WithoutEffect, progress.Unreached); len(a.Findings) == 0 {
		t.Errorf("no finding: %+v", a)
	}
	write(t, filepath.Join(o.ConfigDir, "route.yaml"), `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{timeout: 3s, route: [{destination: {host: web}}]}]
`)
	becomes("VirtualService/web.a", progress.WithoutEffect, progress.NoChanges)
	connect()
	if a := becomes("VirtualService/web.a", progress.InForce, ""); a.Counted || a.Proxies.Connected != 2 || a.Proxies.Later != 1 {
		t.Errorf("a client connected later: %+v", a)
	}
}
