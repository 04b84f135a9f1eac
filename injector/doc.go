// Package injector adds the proxy to pods: it decides which pods get one, renders the templates of the ConfigMap
// istio-sidecar-injector, merges them into the pod, and returns the difference as a JSON patch.
//
// A Config is one version of that ConfigMap, compiled. An Injector holds the Config in force; Set replaces it. Parse
// returns findings instead of a Config for texts that cannot be used. Inject uses no file and no network. The time and
// the output of each template and the length of each list of a pod are bounded. The package does not know API servers:
// its caller watches the ConfigMap, and injector/webhook answers admission reviews. An Injector may be used by any
// goroutine, and starts one for each template of a pod.
//
// # Guarantees
//
//   - With the ConfigMap of Istio's chart, pods come out as istiod makes them: [deploy/e2e/charts.TestInjectedAsIstio]
//     (make compat). With the templates of this project each annotation, label and value has the same effect:
//     [deploy/e2e/charts.TestAnnotationsAsIstio], [deploy/e2e/charts.TestValuesOfIstio].
//   - A ProxyConfig is in force for the pods of its namespace, or of all namespaces, as soon as it is written:
//     [pilot/bootstrap.TestProxyConfigs].
//   - A pod's labels and annotations and the templates decide what it gets, and a second injection changes nothing:
//     [TestGoldens], [FuzzInject].
//   - A template costs a bounded amount of time and memory, and reaches no network: [TestTemplatesAreBounded]. A pod
//     with long lists is refused: [TestLongListsAreRefused]. The answer for any pod is short: [TestHostilePods].
//   - A template for Gateways makes a bounded number of objects, or an error says what is wrong: [TestRender].
//   - A wrong version of the ConfigMap is a finding and is not used; the version before it stays in force:
//     [TestParse], [pilot/bootstrap.TestInjection]. A server does not start with broken templates:
//     [pilot/bootstrap.TestInjectionIsNotReadyWithBrokenTemplates].
//   - A document without pods stays as it is, byte for byte: [cmd/pilot-discovery.TestScripts/inject].
package injector
