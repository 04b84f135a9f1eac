// Package authz tests authorization policies with real Envoys, whose certificates come from the control plane: what is
// let in by each attribute of a request and of a connection, and what is kept out. The authorizers of policies of
// action CUSTOM are servers of the tests, on the network of the pods.
//
//   - mesh_test.go: the mesh, its callers, and how they call.
//   - authorizer_test.go: the authorizers, over gRPC and HTTP.
//   - policies_test.go: the policies, and what they let in.
//   - bodies_test.go: which bodies authorizers see, and which of their headers are passed on.
package authz
