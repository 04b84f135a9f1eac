// Package inspect answers questions about a configuration without a server that runs. Commands use it.
//
//   - What is wrong, and what would a proxy be sent? This package reads the configuration once (inspect.go).
//   - What would a change do? Package diff compares what proxies are sent before and after it (change.go).
//   - What happens to a request? Package trace follows it through what proxies are sent, as Envoy does (why.go).
//
// Package pilot/pushes answers what happened on a server. The command migrate says what differs from istiod.
//
// What a proxy says of itself comes from its Pod, and from the configuration that injection would give it: that of the
// mesh, of ProxyConfigs and of its annotation (metadata.go).
//
// An Inspection is made of the parts that a server is made of: the sources and the World of package ingest, and a
// Translator. They run until the first snapshot is there. Nothing listens and nothing is served. If there are
// EnvoyFilters, the resources of the proxies of all Pods are made, because only that shows what patches match
// (patches.go).
//
// A running server can be asked for the way of a request too (running.go). Then the World and the Translator are the
// server's, and are only read.
package inspect
