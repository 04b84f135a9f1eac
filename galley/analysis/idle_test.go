package analysis

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestSaysIdle: some findings say that an object reaches no proxy.
func TestSaysIdle(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, labels: {app: web}}\n" +
		"spec: {containers: [{name: c, ports: [{containerPort: 80}]}]}\nstatus: {podIP: 10.0.0.1}\n---\n"
	object := func(kind, ns, spec string) string {
		return "apiVersion: " + kind + "\nmetadata: {name: x, namespace: " + ns + "}\nspec: " + spec + "\n"
	}
	const policy = "security.istio.io/v1\nkind: PeerAuthentication"
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	for name, c := range map[string]struct {
		text string
		idle bool
	}{
		"selects no workload":           {object(policy, "shop", "{selector: {matchLabels: {app: wbe}}}"), true},
		"selects one":                   {object(policy, "shop", "{selector: {matchLabels: {app: web}}}"), false},
		"selects in the root namespace": {object(policy, "istio-system", "{selector: {matchLabels: {app: web}}}"), true},
		"almost the root namespace":     {object(policy, "istio-sytem", "{mtls: {mode: STRICT}}"), true},
		"a Service without endpoints": {object("v1\nkind: Service", "shop",
			"{clusterIP: 10.1.0.1, selector: {app: wbe}, ports: [{name: http, port: 80}]}"), false},
		"a host that is not there": {object("networking.istio.io/v1\nkind: VirtualService", "shop",
			"{hosts: [web], http: [{route: [{destination: {host: none}}]}]}"), false},
	} {
		idle := false
		for _, d := range Run(decode(t, pod+c.text), Options{Domain: "cluster.local", Mesh: m, Still: true}) {
			idle = idle || SaysIdle(d)
		}
		if idle != c.idle {
			t.Errorf("%s: %t", name, idle)
		}
	}
}
