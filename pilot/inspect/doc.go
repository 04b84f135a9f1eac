// Package inspect answers questions about a configuration without a running server. Commands use it.
//
// - What is wrong, and what would a proxy be sent? This package reads the configuration once (inspect.go).
// - What would a change do? Package diff compares what proxies are sent before and after it (change.go).
// - What happens to a request? Package trace follows it through what proxies are sent, as Envoy does (why.go).
// - What would a move from istiod change? Package migration judges the objects and what is beside them.
//
// Package pilot/pushes answers what happened on a server.
//
// The node of a proxy is made from its Pod and from the proxy configuration that injection would use: the mesh's,
// overridden by ProxyConfigs and by the Pod's annotation (metadata.go).
//
// An Inspection consists of the same parts as a server: the sources and the World of package ingest, and a Translator.
// They run until the first snapshot exists. Nothing listens and nothing is served. If there are EnvoyFilters, the
// resources of the proxies of all Pods are made, because only these show what patches match (patches.go).
//
// A running server also answers what happens to a request (running.go). Then the World and the Translator are the
// server's, and are only read.
package inspect
