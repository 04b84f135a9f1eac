// Package gatewayapi tests the Gateway API from a directory, without a cluster: the sample gateway-api runs with real
// Envoys, and clients of every kind of route see who answers, and what the Gateway refuses. Where a status would say
// that something is wrong, a finding says it, with the file and the line.
//
// The tests start a control plane and the pods of the sample, which are namespaces of this process.
package gatewayapi
