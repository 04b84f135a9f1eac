package bootstrap

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// why follows a request through what the server sends proxies, as those that are connected say they are.
func (s *Server) why(v url.Values) (any, error) {
	q, err := inspect.ParseQuery(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", debug.ErrBadQuery, err)
	}
	q.Now = time.Now()
	snap := s.world.Snapshot()
	if snap == nil {
		return nil, fmt.Errorf("%w: the server has no configuration yet", debug.ErrBadQuery)
	}
	clients, proxies := map[string]xds.Client{}, map[string]*node.Proxy{}
	for _, c := range s.discovery.Clients() { // the newest stream of a proxy counts
		clients[c.Proxy.ID], proxies[c.Proxy.ID] = c, c.Proxy
	}
	i := inspect.Of(s.o.Options, catalog.Features(), snap, inspect.Running{
		World: s.world, Translator: s.translator,
		Connected: func() map[string]*node.Proxy { return proxies },
		State:     func(name string) string { return standing(clients[name]) },
		Sent: func(name, typeURL string) ([]*envoy.Resource, bool) {
			return s.discovery.Dump(clients[name].ID, typeURL)
		},
	})
	way, err := i.Why(q)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", debug.ErrBadQuery, err)
	}
	return way, nil
}

// standing says what a proxy has not taken of what it was sent; empty: it has taken all.
func standing(c xds.Client) string {
	var said []string
	for _, typeURL := range slices.Sorted(maps.Keys(c.Types)) {
		switch t, name := c.Types[typeURL], strings.ToUpper(envoy.ShortType(typeURL)); {
		case t.LastError != "":
			said = append(said, "has rejected "+name+": "+t.LastError)
		case t.Sent != t.Acked:
			said = append(said, "has not acknowledged "+name+" yet")
		}
	}
	return strings.Join(said, ", and ")
}
