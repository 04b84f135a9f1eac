package grpc

import (
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// marker identifies the Sets of gRPC in the cache.
type marker struct{}

// byName returns the resources of a list of names. build returns the resource of one name, or nil if there is none.
func byName(cache *engine.Cache, v *view.View, k engine.Key, list *envoy.Names,
	build func(name string) *envoy.Resource) (*envoy.Set, error) {
	k.Part = marker{}
	s := engine.GetByName(cache, k, v.Revision, list, engine.ByName{
		Affected: func(d *scope.Dirty, list *envoy.Names) []string {
			if d.NoHosts() {
				return nil
			}
			return list.All()
		},
		Build: build,
	})
	return s.Set, s.Err()
}

// client returns the key of the Sets of a type that depend on what a client may call.
func client(typeURL string, c cohort.Key) engine.Key {
	return engine.Key{Type: typeURL, Client: c.Client.Weak()}
}

// read decodes a message that this program has encoded.
func read(value []byte, m proto.Message) {
	if err := proto.Unmarshal(value, m); err != nil {
		panic("reading a resource of an Envoy: " + err.Error())
	}
}
