package analysis

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Objects that stand where they have no effect, and Pods of files that are no endpoints or have the address of another.
func TestObjectsWithoutEffect(t *testing.T) {
	m := mesh.Default()
	m.RootNamespace = "istio-system"
	policy := func(ns string) string {
		return "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: " + ns + "}\n"
	}
	configMap := func(ns, name, key string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + ns + "}\ndata: {" + key + ": x}\n"
	}
	pod := func(name, status, spec string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
			", namespace: a, labels: {app: web}}\nstatus: {" + status + "}\nspec: {" + spec + "}\n"
	}
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: istio-sytem}\nspec: {ports: [{port: 80}]}\n---\n"
	const selecting = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
	for name, c := range map[string]struct{ text, want string }{
		"policy": {policy("istio-sytem"), `warning: PeerAuthentication istio-sytem/default: metadata.namespace: nothing else is in namespace ` +
			`istio-sytem, and it is not the root namespace: the object has no effect; did you mean "istio-system"? [NearlyRootNamespace]`},
		"policy of the root": {policy("istio-system"), ""},
		"policy that selects in the root": {policy("istio-system") + "spec: {selector: {matchLabels: {app: web}}}\n",
			`PeerAuthentication istio-system/default: spec.selector: in the root namespace a PeerAuthentication with a selector has no effect, ` +
				`there and elsewhere; remove the selector, or write the policy into the namespace of the workloads [SelectorInRootNamespace]`},
		"policy that selects elsewhere": {policy("shop") + "spec: {selector: {matchLabels: {app: web}}}\n", ""},
		"policy of another namespace":   {policy("shop"), ""},
		"policy where a Service is":     {service + policy("istio-sytem"), ""},
		"key": {configMap("istio-system", "istio", "mseh"), `ConfigMap istio-system/istio: data.mseh: ` +
			`the key "mseh" of the mesh configuration has no effect; did you mean "mesh"? [MeshConfigNotRead]`},
		"keys": {configMap("istio-system", "istio", "mesh: '', meshNetworks: '', values"), ""},
		"mesh configuration elsewhere": {configMap("default", "istio", "mesh"), `ConfigMap default/istio: metadata: it looks like the ` +
			`mesh configuration but has no effect: the server reads ConfigMap istio-system/istio; name it istio in namespace istio-system`},
		"mesh configuration by another name": {configMap("istio-system", "istoi", "mesh"), "but has no effect: the server reads"},
		"of another revision":                {configMap("istio-system", "istio-canary", "mesh"), ""},
		"another ConfigMap":                  {configMap("default", "app", "mseh"), ""},
		"one address": {selecting + pod("p", "podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]", "") + pod("q", "podIP: 10.0.0.1", ""),
			"Pod a/q: status.podIP: Pod a/p has the address 10.0.0.1 too: requests to one may reach the other"},
		"two addresses": {selecting + pod("p", "podIP: 10.0.0.1", "") + pod("q", "podIP: 10.0.0.2", ""), ""},
		"one address of a node": {
			selecting + pod("p", "podIP: 10.0.0.1", "hostNetwork: true") + pod("q", "podIP: 10.0.0.1", "hostNetwork: true"), "",
		},
		"one without an address": {selecting + pod("p", "podIP: 10.0.0.1", "") + pod("q", "", ""), "Service a/web: spec.selector: " +
			"of the Pods that the Service selects some have no IP address and are no endpoints (q); write status.podIP into them [NoEndpoints]"},
	} {
		t.Run(name, func(t *testing.T) {
			list := Run(decode(t, c.text), Options{Domain: "cluster.local", Mesh: m, Still: true,
				MeshConfig: []kinds.Key{{Kind: kinds.ConfigMap, Namespace: "istio-system", Name: "istio"}}})
			if c.want == "" && len(list) > 0 ||
				c.want != "" && (len(list) != 1 || list[0].Severity != diag.Warning || !strings.Contains(list[0].String(), c.want)) {
				t.Errorf("got %v, want %q", list, c.want)
			}
		})
	}
}
