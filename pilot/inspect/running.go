package inspect

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// Running is a server that runs.
type Running struct {
	World      *ingest.World
	Translator *translate.Translator
	Connected  func() map[string]*node.Proxy // the proxies that are connected, by NAME.NAMESPACE
	// State returns how a connected proxy stands with what it was sent: "has rejected LDS: ..."; empty: all is well.
	State func(name string) string
	// Sent returns what a proxy was sent of a type. It returns false if it never asked for that.
	Sent func(name, typeURL string) ([]*envoy.Resource, bool)
}

// Of returns an Inspection of a server at a Snapshot that it has published. It may be asked why, and nothing else: it
// must not change the World.
func Of(o ingest.Options, features catalog.List, s *snapshot.Snapshot, r Running) *Inspection {
	return &Inspection{Snapshot: s, o: o, features: features, world: r.World, translator: r.Translator, server: &r}
}
