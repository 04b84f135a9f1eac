package mcp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/mcp"
)

// TestFirstAnswers: nothing is handed on before every kind is answered, then everything at once; the requests name who
// asks and acknowledge what came.
func TestFirstAnswers(t *testing.T) {
	w := newWorld()
	w.set(virtualServices, resource(t, "a/web", virtual("web")))
	w.forget(serviceEntries)
	w.set(policies, resource(t, "a/p", policy("web", false)))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{
		Address: "xds://" + address, Node: mcp.Node{Name: "istiod-1", Namespace: "sys", IP: "10.0.0.9", Domain: "c.local", Version: "1.0"},
	})
	acked := func(url string) bool {
		return slices.ContainsFunc(w.heard(), func(q *discoveryv3.DiscoveryRequest) bool {
			return q.TypeUrl == url && q.ResponseNonce == url+q.VersionInfo && q.VersionInfo != "" && q.ErrorDetail == nil
		})
	}
	eventually(t, "what was answered is acknowledged", func() bool { return acked(virtualServices) && acked(policies) })
	if len(r.history()) != 0 || r.HasSynced() {
		t.Fatal("something was handed on before all was known")
	}
	w.set(serviceEntries, resource(t, "a/ext", entry("ext.example")))
	eventually(t, "synced", r.HasSynced)
	if calls := r.history(); len(calls) != 1 || len(calls[0]) != 3 {
		t.Errorf("first calls %v", calls)
	}
	o := r.object(kinds.VirtualService, "a", "web")
	if o == nil || !proto.Equal(o.Spec.(proto.Message), virtual("web")) || !o.Created.Equal(created) || o.Labels["app"] != "web" ||
		o.Annotations["note"] != "x" {
		t.Errorf("object %+v", o)
	}
	var asked []string
	var nodes int
	for _, q := range w.heard() {
		if q.ResponseNonce == "" {
			asked = append(asked, q.TypeUrl)
		}
		if n := q.Node; n != nil {
			nodes++
			if n.Id != "sidecar~10.0.0.9~istiod-1.sys~sys.svc.c.local" || n.Metadata.Fields["GENERATOR"].GetStringValue() != "api" {
				t.Errorf("node %v", n)
			}
		}
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []string{serviceEntries, virtualServices, policies}) || nodes != 1 {
		t.Errorf("asked for %v with %d nodes", asked, nodes)
	}
	if len(r.Findings()) != 0 {
		t.Errorf("findings %v", r.Findings())
	}
}

func TestChangesAreHandedOn(t *testing.T) {
	w := newWorld()
	w.set(virtualServices, resource(t, "a/x", virtual("x")), resource(t, "a/y", virtual("y")))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address})
	eventually(t, "synced", r.HasSynced)
	y := r.object(kinds.VirtualService, "a", "y")
	w.set(virtualServices, resource(t, "a/y", virtual("y")), resource(t, "b/z", virtual("z")))
	eventually(t, "the change", func() bool { return r.object(kinds.VirtualService, "b", "z") != nil })
	if got := r.keys(); !slices.Equal(got, []string{"VirtualService a/y", "VirtualService b/z"}) {
		t.Errorf("objects %v", got)
	}
	if calls := r.history(); len(calls) != 2 || len(calls[1]) != 2 || r.object(kinds.VirtualService, "a", "y") != y {
		t.Errorf("calls %v", calls)
	}
	// Other bytes of the same content are no change.
	again := &mcpv1alpha1.Resource{}
	must.Succeed(t, resource(t, "a/y", virtual("y")).UnmarshalTo(again))
	again.Metadata.Version = "another"
	w.set(virtualServices, pack(t, again), resource(t, "b/z", virtual("other")))
	eventually(t, "the change", func() bool {
		return proto.Equal(r.object(kinds.VirtualService, "b", "z").Spec.(proto.Message), virtual("other"))
	})
	if r.object(kinds.VirtualService, "a", "y") != y || len(r.history()[2]) != 1 {
		t.Errorf("what says the same was handed on: %v", r.history()[2])
	}
}

// TestReconnect: while the server is away all stays; afterwards only what is different is handed on, and a kind counts
// as gone only when it was answered.
func TestReconnect(t *testing.T) {
	w := newWorld()
	w.set(virtualServices, resource(t, "a/x", virtual("x")), resource(t, "a/y", virtual("y")))
	w.set(serviceEntries, resource(t, "a/ext", entry("ext.example")))
	w.set(policies, resource(t, "a/p", policy("web", false)))
	metrics := prometheus.NewRegistry()
	address, stop := serve(t, w, freeAddress(t))
	r := read(t, mcp.Options{Address: address, Metrics: metrics})
	eventually(t, "synced", r.HasSynced)
	stop()
	eventually(t, "a finding", func() bool { return r.finds("ConfigSource", "") })
	if len(r.history()) != 1 || len(r.keys()) != 4 {
		t.Fatalf("the loss of the server changed something: %v", r.history())
	}
	w.set(virtualServices, resource(t, "a/x", virtual("x")), resource(t, "a/z", virtual("z")))
	w.forget(serviceEntries)
	w.set(policies)
	serve(t, w, address)
	eventually(t, "the server's new state", func() bool {
		return slices.Equal(r.keys(), []string{"ServiceEntry a/ext", "VirtualService a/x", "VirtualService a/z"})
	})
	w.set(serviceEntries, resource(t, "a/ext", entry("ext.example")))
	eventually(t, "no finding", func() bool { return len(r.Findings()) == 0 })
	var changes []string
	for _, call := range r.history()[1:] {
		for _, c := range call {
			changes = append(changes, c.Key.String())
		}
	}
	slices.Sort(changes)
	if !slices.Equal(changes, []string{"AuthorizationPolicy a/p", "VirtualService a/y", "VirtualService a/z"}) {
		t.Errorf("changes %v", changes)
	}
	families, err := metrics.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		m := f.GetMetric()[0]
		switch f.GetName() {
		case "pilot_mcp_emptied_kinds":
			if m.GetCounter().GetValue() != 1 || m.GetLabel()[0].GetValue() != "xds://"+address {
				t.Errorf("%v", m)
			}
		case "pilot_mcp_objects":
			if m.GetGauge().GetValue() != 3 {
				t.Errorf("%v", m)
			}
		}
	}
}

// TestServerComesLate: a source may be there before its server.
func TestServerComesLate(t *testing.T) {
	w := newWorld()
	address, stop := serve(t, w, freeAddress(t))
	stop()
	r := read(t, mcp.Options{Address: address})
	eventually(t, "a finding", func() bool { return r.finds("ConfigSource", "") })
	if r.HasSynced() {
		t.Error("synced with nobody")
	}
	serve(t, w, address)
	eventually(t, "synced", r.HasSynced)
	eventually(t, "no finding", func() bool { return len(r.Findings()) == 0 })
}

// TestBadObject: an object that cannot be used keeps its last good version, or is in force without what is wrong. A
// policy that only allows does so by what can be read of it. The response is acknowledged.
func TestBadObject(t *testing.T) {
	w := newWorld()
	good := resource(t, "a/web", virtual("web"))
	w.set(virtualServices, good, resource(t, "a/other", virtual("other")))
	w.set(policies, resource(t, "a/bad", policy("web", true)), resource(t, "a/good", policy("api", false)))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address})
	eventually(t, "synced", r.HasSynced)
	closed := r.object(kinds.AuthorizationPolicy, "a", "bad")
	if closed == nil || !proto.Equal(closed.Spec.(proto.Message), &securityv1.AuthorizationPolicy{Selector: policy("web", true).Selector}) {
		t.Errorf("in the place of a policy that cannot be used stands %v", closed)
	}
	if !r.finds("Unusable", "AuthorizationPolicy a/bad") || !r.finds("IST0106", "AuthorizationPolicy a/bad") {
		t.Errorf("findings %v", r.Findings())
	}
	was := r.object(kinds.VirtualService, "a", "web")
	wrong := virtual("web")
	wrong.Http[0].Route[0].Weight = -1
	foreign := resource(t, "a/foreign", entry("x.example"))
	w.set(
		virtualServices, resource(t, "a/web", wrong), resource(t, "a/new", wrong), foreign, good, resource(t, "Bad_NS/x", virtual("x")),
		resource(t, "noslash", virtual("x")), &anypb.Any{TypeUrl: "x/y"},
	)
	w.set(policies, resource(t, "a/bad", policy("db", true)), resource(t, "a/good", policy("db", true)))
	eventually(t, "the findings", func() bool {
		return r.finds("Unusable", "VirtualService a/web") && r.finds("Unusable", "AuthorizationPolicy a/good")
	})
	for _, o := range []string{"a/new", "a/foreign", "Bad_NS/x"} {
		if !r.finds("Unusable", "VirtualService "+o) {
			t.Errorf("no finding about %s: %v", o, r.Findings())
		}
	}
	if !r.finds("DuplicateObject", "VirtualService a/web") || !r.finds("Unusable", "VirtualService") {
		t.Errorf("findings %v", r.Findings())
	}
	if r.object(kinds.VirtualService, "a", "web") != was {
		t.Error("the last good version is gone")
	}
	eventually(t, "the stand-in selects anew", func() bool {
		spec := r.object(kinds.AuthorizationPolicy, "a", "bad").Spec.(*securityv1.AuthorizationPolicy)
		return spec.Selector.MatchLabels["app"] == "db" && spec.Rules == nil
	})
	spec := r.object(kinds.AuthorizationPolicy, "a", "good").Spec.(*securityv1.AuthorizationPolicy)
	if spec.Selector.MatchLabels["app"] != "db" || spec.Rules != nil {
		t.Errorf("the new version allows nothing that can be read, and is %v", spec)
	}
	// The new version selects other workloads: for those of the last good one, that stays in force.
	if got := r.keys(); !slices.Equal(got, []string{"AuthorizationPolicy a/bad", "AuthorizationPolicy a/good",
		"AuthorizationPolicy a/good (last good version)", "VirtualService a/new", "VirtualService a/web"}) {
		t.Errorf("objects %v", got)
	}
	for _, q := range w.heard() {
		if q.ErrorDetail != nil {
			t.Errorf("rejected: %v", q)
		}
	}
	w.set(virtualServices, good)
	w.set(policies)
	eventually(t, "no finding", func() bool { return len(r.Findings()) == 0 })
	if got := r.keys(); !slices.Equal(got, []string{"VirtualService a/web"}) {
		t.Errorf("objects %v", got)
	}
}

// TestSecurityObjectWithoutName: it is not known what a policy without a name would close, so the whole response is
// rejected, and at first nothing is served.
func TestSecurityObjectWithoutName(t *testing.T) {
	w := newWorld()
	w.set(policies, resource(t, "a/good", policy("api", false)), resource(t, "Bad_NS/p", policy("api", false)))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address})
	rejected := func() int {
		return len(slices.DeleteFunc(w.heard(), func(q *discoveryv3.DiscoveryRequest) bool { return q.ErrorDetail == nil }))
	}
	eventually(t, "the response is rejected", func() bool { return rejected() == 1 && r.finds("SourceRejected", "AuthorizationPolicy") })
	if r.HasSynced() || len(r.history()) > 0 {
		t.Fatal("something was handed on")
	}
	w.set(policies, resource(t, "a/good", policy("api", false)))
	eventually(t, "synced", r.HasSynced)
	w.set(policies, resource(t, "noslash", policy("api", false)))
	eventually(t, "the response is rejected", func() bool { return rejected() == 2 && r.finds("SourceRejected", "AuthorizationPolicy") })
	if got := r.keys(); !slices.Equal(got, []string{"AuthorizationPolicy a/good"}) {
		t.Errorf("objects %v", got)
	}
	w.set(policies)
	eventually(t, "no finding", func() bool { return len(r.Findings()) == 0 && len(r.keys()) == 0 })
}

// TestFieldsOfNewerReleases: they are left out with a warning; in a security object they might close something.
func TestFieldsOfNewerReleases(t *testing.T) {
	vs, p := virtual("web"), policy("web", false)
	vs.Http[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1})
	p.Rules[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1})
	w := newWorld()
	w.set(virtualServices, resource(t, "a/web", vs))
	w.set(policies, resource(t, "a/p", p))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address})
	eventually(t, "synced", r.HasSynced)
	if o := r.object(kinds.VirtualService, "a", "web"); o == nil || !proto.Equal(o.Spec.(proto.Message), virtual("web")) ||
		!r.finds("UnknownField", "VirtualService a/web") {
		t.Errorf("%v, findings %v", o, r.Findings())
	}
	if o := r.object(kinds.AuthorizationPolicy, "a", "p"); o == nil || o.Spec.(*securityv1.AuthorizationPolicy).Rules != nil {
		t.Errorf("%v", o)
	}
}

func TestLimits(t *testing.T) {
	l := limits.Default()
	l.ConfigResponse, l.ConfigObject = 20<<10, 5<<10
	w := newWorld()
	large := func(name string) *anypb.Any {
		return resource(t, name, &networkingv1.VirtualService{Hosts: []string{strings.Repeat("x", 6<<10)}, Http: virtual("x").Http})
	}
	w.set(virtualServices, large("a/large"), resource(t, "a/small", virtual("small")))
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address, Limits: l})
	eventually(t, "synced", r.HasSynced)
	if got := r.keys(); !slices.Equal(got, []string{"VirtualService a/small"}) || !r.finds("Unusable", "VirtualService a/large") {
		t.Errorf("objects %v, findings %v", got, r.Findings())
	}
	w.set(virtualServices, large("a/1"), large("a/2"), large("a/3"), large("a/4"))
	eventually(t, "a finding", func() bool { return r.finds("ConfigSource", "") })
	if got := r.keys(); !slices.Equal(got, []string{"VirtualService a/small"}) {
		t.Errorf("objects %v", got)
	}
	w.set(virtualServices)
	eventually(t, "the source goes on", func() bool { return len(r.keys()) == 0 && len(r.Findings()) == 0 })
}

// TestSilentServer: one that takes requests and answers nothing is left and tried again; one that answers in part is
// kept.
func TestSilentServer(t *testing.T) {
	l := limits.Default()
	l.ConfigAnswer = 50 * time.Millisecond
	w := newWorld()
	for _, url := range []string{virtualServices, serviceEntries, policies} {
		w.forget(url)
	}
	address, _ := serve(t, w, "127.0.0.1:0")
	r := read(t, mcp.Options{Address: address, Limits: l})
	streams := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.headers)
	}
	eventually(t, "another stream", func() bool { return streams() > 2 && r.finds("ConfigSource", "") })
	w.set(virtualServices)
	w.set(policies)
	eventually(t, "the kind is named that is not answered", func() bool {
		list := r.Findings()
		return len(list) == 1 && strings.Contains(list[0].Message, serviceEntries) && !strings.Contains(list[0].Message, policies)
	})
	if r.HasSynced() {
		t.Error("synced without an answer for every kind")
	}
	w.set(serviceEntries)
	eventually(t, "synced", func() bool { return r.HasSynced() && len(r.Findings()) == 0 })
}

// TestAnotherService: a port where something else is served is a finding.
func TestAnotherService(t *testing.T) {
	address, _ := serve(t, newWorld(), "127.0.0.1:0", grpc.StreamInterceptor(func(
		any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler,
	) error {
		return nil
	}))
	r := read(t, mcp.Options{Address: address})
	eventually(t, "a finding", func() bool {
		list := r.Findings()
		return len(list) == 1 && strings.Contains(list[0].Message, "it ended the stream")
	})
}
