// Package bootstrap makes the configuration that an Envoy starts with: who it is, where its control plane is and how to
// ask it, where its certificates come from, and where its admin API listens. Clusters, listeners and routes come from
// the control plane.
//
// It starts no Envoy, reads no file and holds no state.
package bootstrap
