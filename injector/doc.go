// Package injector adds the proxy to pods: it decides which pods get one, renders the templates of the ConfigMap
// istio-sidecar-injector, merges them into the pod, and says the difference as a JSON patch.
//
// A Config is one version of that ConfigMap, compiled. An Injector holds the one in force; Set replaces it, and a
// broken one is refused with findings. Inject touches no file and no network. Each template has a bound of time and of
// output, and each list of a pod one of length. The package knows no API server: pilot/bootstrap watches the ConfigMap,
// and injector/webhook answers admission reviews. An Injector may be used by any goroutine, and starts one for each
// template of a pod.
package injector
