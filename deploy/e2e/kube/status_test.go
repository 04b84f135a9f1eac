package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

const routed = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: %s}}]}]}
`

// rivals has, by kind, the spec of two objects that compete, and the text in the status of the second.
var rivals = []struct{ kind, version, plural, spec, loses string }{
	{"VirtualService", "networking.istio.io/v1", "virtualservices",
		`{hosts: [api.shop.svc.cluster.local], http: [{route: [{destination: {host: web}}]}]}`,
		`VirtualService shop/one has the host api.shop.svc.cluster.local too and takes precedence for sidecars (`},
	{"DestinationRule", "networking.istio.io/v1", "destinationrules",
		`{host: web, trafficPolicy: {loadBalancer: {simple: RANDOM}}, subsets: [{name: v1}]}`,
		`DestinationRule shop/one defines the subset "v1" of web.shop.svc.cluster.local too, and its definition is used (`},
	{"Gateway", "networking.istio.io/v1", "gateways",
		`{selector: {istio: gw}, servers: [{port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: [web.example]}]}`,
		`Gateway shop/one has the host web.example on port 443 for the same workloads: its server is used for it (`},
	{"ServiceEntry", "networking.istio.io/v1", "serviceentries",
		`{hosts: [x.example], resolution: %s, ports: [{number: 80, name: http, protocol: HTTP}]}`,
		`ServiceEntry shop/one has the host x.example too and defines it (`},
	{"Sidecar", "networking.istio.io/v1", "sidecars", `{egress: [{hosts: ["./*"]}]}`,
		`Sidecar shop/one has no workload selector either, and comes first (`},
	{"Telemetry", "telemetry.istio.io/v1", "telemetries", `{accessLogging: [{disabled: true}]}`,
		`Telemetry shop/one has no workload selector either, and comes first (`},
	{"PeerAuthentication", "security.istio.io/v1", "peerauthentications", `{mtls: {mode: STRICT}}`,
		`PeerAuthentication shop/one has no workload selector either, and comes first (`},
}

// TestStatus: with the rights of the chart, one of two replicas writes findings to the status of objects, and removes
// them when the object is corrected, also those of an earlier leader. Conditions of other writers stay, nothing is
// written twice, and no write causes a push. If two objects compete, the status of the loser names the winner and the
// rule.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := installed.Start(t, "--set", "env.PILOT_ENABLE_ANALYSIS=true")
	routes := w.Dynamic().Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}).
		Namespace("shop")
	w.Write(fmt.Sprintf(routed, "wbe"))
	one := w.Launch(program, "istiod", "istiod-0", "--drainDuration=0s").Ready()
	get := func() *unstructured.Unstructured {
		u, err := routes.Get(w.Ctx, "web", metav1.GetOptions{})
		w.Must(err)
		return u
	}
	status := func(u *unstructured.Unstructured) map[string]any {
		s, _, _ := unstructured.NestedMap(u.Object, "status")
		return s
	}
	// says returns an error unless the status has so many messages for the current generation.
	says := func(count int) error {
		u := get()
		s := status(u)
		messages, _, _ := unstructured.NestedSlice(s, "validationMessages")
		conditions, _, _ := unstructured.NestedSlice(s, "conditions")
		if len(messages) != count || len(conditions) == 0 || fmt.Sprint(s["observedGeneration"]) != fmt.Sprint(u.GetGeneration()) {
			return fmt.Errorf("generation %d, status %v", u.GetGeneration(), s)
		}
		if count > 0 {
			m := messages[0].(map[string]any)
			if kind, _ := m["type"].(map[string]any); m["level"] != "ERROR" || kind["code"] != "IST0101" ||
				kind["name"] != "ReferencedResourceNotFound" {
				return fmt.Errorf("message %v", m)
			}
		}
		return nil
	}
	revision := func(of *installed.Replica) float64 {
		resp, err := http.Get("http://" + of.Monitoring + "/debug/pushcontext")
		w.Must(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		w.Must(err)
		var page map[string]any
		w.Must(json.Unmarshal(text, &page))
		rev, ok := page["revision"].(float64)
		if !ok {
			t.Fatalf("no revision in %s", text)
		}
		return rev
	}
	w.Eventually("the status says what is wrong", func() error { return says(1) })

	// A condition of another writer stays, and a write to a status makes no snapshot.
	before := revision(one)
	_, err := routes.Patch(w.Ctx, "web", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Other","status":"True"}]}}`),
		metav1.PatchOptions{}, "status")
	w.Must(err)
	w.Write(fmt.Sprintf(routed, "wbee")) // one change, one snapshot; the condition follows
	w.Eventually("the status of the next generation", func() error {
		s := status(get())
		if conditions, _, _ := unstructured.NestedSlice(s, "conditions"); len(conditions) != 2 {
			return fmt.Errorf("conditions %v", conditions)
		}
		return says(1)
	})
	if after := revision(one); after != before+1 {
		t.Errorf("revision %v after one change of the spec at revision %v", after, before)
	}

	// Another replica takes over, rewrites nothing, and removes conditions of corrected objects.
	version := get().GetResourceVersion()
	two := w.Launch(program, "istiod", "istiod-1", "--drainDuration=0s").Ready()
	w.Must(one.Stop())
	w.Eventually("the other leads", func() error {
		l, err := w.Client().CoordinationV1().Leases(installed.Namespace).Get(w.Ctx, "istio-analyze-leader", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != "istiod-1" {
			return errors.New("it does not")
		}
		return nil
	})
	w.Write(fmt.Sprintf(routed, "other.example"))
	w.Eventually("the status of the new leader", func() error { return says(1) })
	if get().GetResourceVersion() == version {
		t.Error("nothing was written")
	}
	w.Write(fmt.Sprintf(routed, "web"))
	w.Eventually("the status says that nothing is wrong", func() error { return says(0) })
	steady := get().GetResourceVersion()
	rev := revision(two)
	w.Write("apiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n")
	w.Eventually("another change is in force", func() error {
		if revision(two) == rev {
			return errors.New("not yet")
		}
		return nil
	})
	if got := get().GetResourceVersion(); got != steady {
		t.Errorf("version %s of a status that says what it should, was %s", got, steady)
	}

	for _, name := range []string{"one", "two"} {
		for _, r := range rivals {
			w.Write(fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", r.version, r.kind, name,
				strings.Replace(r.spec, "%s", map[string]string{"one": "DNS", "two": "NONE"}[name], 1)))
		}
	}
	for _, r := range rivals {
		group, version, _ := strings.Cut(r.version, "/")
		objects := w.Dynamic().Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: r.plural}).Namespace("shop")
		w.Eventually("the status of the "+r.kind+" that loses", func() error {
			u, err := objects.Get(w.Ctx, "two", metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(status(u), "conditions")
			for _, c := range conditions {
				text, _ := c.(map[string]any)["message"].(string)
				if _, why, found := strings.Cut(text, r.loses); found && (strings.HasPrefix(why, "it is older)") ||
					strings.HasPrefix(why, "both are of the same age, and it sorts first by name)")) {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", conditions)
		})
		u, err := objects.Get(w.Ctx, "one", metav1.GetOptions{})
		w.Must(err)
		if text := fmt.Sprint(status(u)); strings.Contains(text, "/two") {
			t.Errorf("the status of the %s that wins: %s", r.kind, text)
		}
	}
}
