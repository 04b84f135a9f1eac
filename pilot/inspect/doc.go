// Package inspect reads a configuration once and returns what is wrong with it, what a proxy would be sent, what a
// change would do (change.go) and which way a request goes (why.go), without a server. The commands that need none use
// it.
//
// What a proxy says of itself comes from its Pod, and from the configuration that injection would give it: that of the
// mesh, of ProxyConfigs and of its annotation (metadata.go).
//
// It is made of the parts that a server is made of: the sources and the World of ingest, and a Translator. They run
// until the first snapshot is there. Nothing listens and nothing is served. Where there are EnvoyFilters, what the
// proxies of Pods would be sent is made, because only that shows what patches match (patches.go).
//
// The one exception is the way of a request, which a server that runs may be asked for as well (running.go): then the
// World and the Translator are the server's, and are only read.
package inspect
