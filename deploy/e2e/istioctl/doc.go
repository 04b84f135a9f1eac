// Package istioctl runs Istio's istioctl on an installed control plane, with the tag compat, and writes the result of
// each command to deploy/compat/MATRIX.md.
//
// There is no kubelet. A server in front of the API server answers requests to forward a port of a pod.
package istioctl
