// Package world brings the Pods of a configuration directory to life: it reads the Pods and Services there, gives each
// Pod a network namespace, runs its container as an echo server and puts a real Envoy beside it. So the YAML that the
// control plane serves is also what runs.
//
// A Pod's container does what its arguments name: -http=PORT, -https=PORT, -tcp=PORT and -call=URL, each any number of
// times. -credential=NAME is the Secret with the certificate of -https. The usual label and annotations tell how it is
// meshed: sidecar.istio.io/inject "false" for no sidecar, inject.istio.io/templates "gateway" for a gateway, and
// sidecar.istio.io/interceptionMode "NONE" for a sidecar without redirection.
//
// A World is owned by whoever made it, and may be used from any goroutine. It runs the goroutines of its echo servers;
// Stop ends them and every Envoy.
package world
