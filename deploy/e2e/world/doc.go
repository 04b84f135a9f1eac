// Package world runs the Pods of a configuration directory: it reads the Pods and Services there, gives each Pod a
// network namespace, runs its container as an echo server and starts a real Envoy for it. So the YAML that the control
// plane serves also describes the running mesh.
//
// The arguments of a Pod's container say what it does: -http=PORT, -https=PORT, -tcp=PORT and -call=URL, each any
// number of times. -credential=NAME is the Secret with the certificate for -https. The usual label and annotations
// select the proxy: sidecar.istio.io/inject "false" for no sidecar, inject.istio.io/templates "gateway" for a gateway,
// and sidecar.istio.io/interceptionMode "NONE" for a sidecar without redirection.
//
// The caller of Start owns the World, which may be used from any goroutine. It runs the goroutines of its echo servers.
// Stop ends them and every Envoy.
package world
