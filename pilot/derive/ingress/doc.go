// Package ingress is the stage that derives Gateways and VirtualServices from Ingresses of Kubernetes, as istiod does.
//
//   - stage.go: the stage, and which Ingresses are the mesh's: by the class, and the mode of the mesh configuration.
//   - convert.go: what one Ingress asks for: its Gateway, and routes by host.
//   - hosts.go: a VirtualService for each host, of the routes of all Ingresses that name it.
//   - status.go: the addresses that the status of every Ingress should have.
//
// An Ingress becomes a Gateway in the server's namespace, with a server for each entry of tls and one for HTTP. The
// Secrets are those of the gateway's namespace. The routes of a host are tried by the length of their paths, exact ones
// before prefixes, those of the oldest Ingress first. What differs from istiod is in docs/differences-from-istio.md.
//
// A wildcard host matches names with any number of labels in the place of its star, not one alone.
//
// The stage keeps what it made of an Ingress while that and the Services that it names stay the same. It does nothing
// else for Ingresses that have not changed.
//
// # Guarantees
//
//   - An Ingress, its Services and its class decide what is derived: [TestGoldens], [TestHistories]. Proxies are sent
//     what istiod sends them for it: [pilot/translate.TestReference].
//   - Each field of an Ingress has an effect, or a finding names it: [TestEveryFieldActs]. A change of one Ingress
//     leaves what is derived from other Ingresses: [TestOneOfMany].
//   - A real gateway serves Ingresses by host and path, over HTTP and TLS, and one replica writes their addresses:
//     [deploy/e2e/gatewaytls.TestCluster], [pilot/status.TestDerived].
package ingress
