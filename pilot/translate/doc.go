// Package translate makes Envoy's configuration from a Snapshot: pure functions from (Snapshot, cohort) to Sets of
// resources.
//
// Translator is the entry point. Each type of resources is a folder: clusters are made in cds, their endpoints in eds,
// listeners in lds, route configurations and virtual hosts in rds, secrets in sds, name tables in nds, roots to trust
// in pcds. A table of the Translator has a line for each. What applications are sent that use xDS without a proxy is
// made in grpc.
//
// In each folder, generators read a Snapshot (package view) and make keys. A builder makes each resource from one
// comparable key, which holds everything that the resource depends on; an envoy.Memo stores the resource under that
// key. The key is also the reason why the bytes are what they are. No key holds a Snapshot. Builders call the hooks of
// features (package hooks). Package engine caches the Sets, and has generated again what a Snapshot made dirty.
//
// None of these packages runs a goroutine. The first caller that needs a Set generates it, and the others wait.
//
// # A new type
//
// It needs a line in envoy/types.go, a folder, a line in makers (translator.go), and one in the layers of deploy/house,
// and the Go type of the message; where no module of go.mod has that, as for name tables, it is written in the wire
// format. A Set that depends on facts, on credentials, or on endpoints that make no host dirty needs a stale function
// of its own: engine.IfHosts ignores them. The endpoints of a headless service make its host dirty (scope).
package translate
