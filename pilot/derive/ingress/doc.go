// Package ingress is the stage that derives Gateways and VirtualServices from Ingresses of Kubernetes, as istiod does.
//
//   - stage.go: the stage, and which Ingresses belong to the mesh: by their class, and the mode of the mesh
//     configuration.
//   - convert.go: the translation of one Ingress: its Gateway, and routes by host.
//   - hosts.go: a VirtualService for each host, with the routes of all Ingresses that name it.
//   - status.go: the addresses in the status of every Ingress.
//
// An Ingress becomes a Gateway in the server's namespace, with a server for each entry of tls and one for HTTP. Its
// Secrets are read from the gateway's namespace. The routes of a host are ordered by the length of their paths, exact
// paths before prefixes, and routes of the oldest Ingress first. docs/differences-from-istio.md lists the differences
// from istiod.
//
// The star of a wildcard host matches any number of labels, not only one.
//
// The stage keeps the conversion of an Ingress while it and the Services that it names stay the same. It does nothing
// else for unchanged Ingresses.
//
// # Guarantees
//
//   - The derivation depends only on Ingresses, their Services and their classes: [TestGoldens], [TestHistories].
//     Proxies are sent what istiod sends them for it: [pilot/translate.TestReference].
//   - Each field of an Ingress has an effect, or a finding names it: [TestEveryFieldActs]. A change of one Ingress does
//     not affect the objects derived from other Ingresses: [TestOneOfMany].
//   - A real gateway serves Ingresses by host and path, over HTTP and TLS, and one replica writes their addresses:
//     [deploy/e2e/gatewaytls.TestCluster], [pilot/status.TestDerived].
package ingress
