// Package istioctl has Istio's istioctl work on an installed control plane, with the tag compat, and writes what became
// of each command into deploy/compat/MATRIX.md.
//
// There is no kubelet: what istioctl asks of it, to forward a port of a pod, is answered in front of the API server.
package istioctl
