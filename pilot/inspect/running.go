package inspect

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// Running gives access to a running server.
type Running struct {
	Options    ingest.Options
	World      *ingest.World
	Translator *translate.Translator
	Discovery  Discovery
	Pushes     *pushes.Log       // optional
	Findings   []diag.Diagnostic // of the sources of objects
}

// Discovery returns the streams of a server.
type Discovery interface {
	Clients() []xds.Client
	Dump(id, typeURL string) ([]*envoy.Resource, bool)
}

// streams are the proxies that were connected to a server at the time of the question, by NAME.NAMESPACE.
type streams struct {
	discovery Discovery
	clients   map[string]xds.Client
	proxies   map[string]*node.Proxy
}

// Why follows a request through what the server sends proxies. It does not change the World.
func (r Running) Why(query url.Values) (*Way, error) {
	q, err := ParseQuery(query)
	if err != nil {
		return nil, err
	}
	q.Now = time.Now()
	snap := r.World.Snapshot()
	if snap == nil {
		return nil, errors.New("the server has no configuration yet")
	}
	s := &streams{r.Discovery, map[string]xds.Client{}, map[string]*node.Proxy{}}
	for _, c := range r.Discovery.Clients() { // the last stream of a proxy in the list is the newest
		s.clients[c.Proxy.ID], s.proxies[c.Proxy.ID] = c, c.Proxy
	}
	i := &Inspection{Snapshot: snap, o: r.Options, features: catalog.Features(), world: r.World, translator: r.Translator, server: s,
		sources: r.Findings}
	w, err := i.Why(q)
	if err == nil && w.Log != nil && w.Outbound != nil && r.Pushes != nil {
		i.changed(r.Pushes.Since(0, 0), w)
	}
	return w, err
}

// Sent returns what a proxy was sent of a type. It returns false if the proxy never subscribed to the type.
func (s *streams) Sent(name, typeURL string) ([]*envoy.Resource, bool) {
	return s.discovery.Dump(s.clients[name].ID, typeURL)
}

// State says what a proxy has rejected or not acknowledged. It is empty if the proxy has accepted everything.
func (s *streams) State(name string) string {
	var said []string
	types := s.clients[name].Types
	for _, typeURL := range slices.Sorted(maps.Keys(types)) {
		switch t, name := types[typeURL], strings.ToUpper(envoy.ShortType(typeURL)); {
		case t.LastError != "":
			said = append(said, "has rejected "+name+": "+t.LastError)
		case t.Sent != t.Acked:
			said = append(said, "has not acknowledged "+name+" yet")
		}
	}
	return strings.Join(said, ", and ")
}
