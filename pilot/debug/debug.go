package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// World is the configuration that pages show. Its methods may be called from any goroutine.
type World interface {
	// Snapshot returns the newest snapshot, or nil before the first.
	Snapshot() *snapshot.Snapshot
	// Objects returns every object in force, derived ones too, in no order.
	Objects() []*kinds.Object
	// Origin returns the object of a key, or the object that a derived object of that key was made of, or nil.
	Origin(kinds.Key) *kinds.Object
	// Findings returns what is wrong with configuration, of every source.
	Findings() []diag.Diagnostic
}

// Translator makes what proxies are sent: a *translate.Translator. Its methods may be called from any goroutine.
type Translator interface {
	// Selected returns the objects of a kind that apply to a proxy's workload.
	Selected(s *snapshot.Snapshot, p *node.Proxy, kind *kinds.Kind) []*kinds.Object
	// Visible returns what a proxy sees, and a function that returns the DestinationRules of a service that it sees.
	Visible(s *snapshot.Snapshot, p *node.Proxy) (*scope.Scope, func(*registry.Service) []*kinds.Object)
	// Stats returns how many lookups of an encoded resource found one, and how many did not.
	Stats() (hits, misses uint64)
	// Kept returns the number of encoded resources that are kept.
	Kept() int
	// Each calls yield with every encoded resource that is kept, but for secrets.
	Each(yield func(*envoy.Resource))
	// AllConflicts returns what does not get what it asks for, by the name of the metric that counts it.
	AllConflicts() map[string][]string
}

// Server is what pages ask of the rest of the control plane. Its methods may be called from any goroutine.
type Server interface {
	// Why returns the way of a request, as JSON.
	Why(url.Values) (any, error)
	// Templates returns the templates of injection, by name.
	Templates() map[string]string
	// Clusters returns the clusters that are read, as JSON.
	Clusters() any
}

// Options of the debug API.
type Options struct {
	World      World
	Proxies    Proxies
	Pushes     *pushes.Log // nil if none are recorded
	Translator Translator  // nil if nothing is translated
	Server     Server      // nil if there is no control plane: then there is no page why
	Cluster    string      // ID of the cluster that the server runs in
	Domain     string      // of that cluster: cluster.local
	Limits     limits.Limits
	Replicas   Replicas // nil if the server has no others
	Name       string   // of this replica
	Version    string   // of the build

	Authorizer *authorize.Authorizer // who may read pages; nil: as by the zero authorize.Options
	// Authenticate returns the peer that a bearer token over HTTP proves. If it is nil, peers are known by their addresses
	// alone.
	Authenticate func(ctx context.Context, address netip.AddrPort, token string) (identity.Peer, error)

	Admin   bool // serve pages that change something: force_disconnect
	Profile bool // serve pprof
}

// API is the debug API.
type API struct {
	o     Options
	pages []page
	slots *quota.Slots[identity.Holder] // for the requests over HTTP that are answered

	watchers *quota.Slots[identity.Holder] // for the requests over HTTP that wait for a push
	closing  context.Context
	close    context.CancelFunc
}

// page is one endpoint below /debug.
type page struct {
	name, about string
	variant     string // another query that the list names, or empty
	proxy       bool   // it wants proxyID
	answer      func(url.Values) (any, error)

	ownProxyOnly bool   // a peer that may not read every page may read it about proxies of its own namespace
	acts         bool   // it does more than read
	actsWith     string // the parameter with which it does more than read, or empty
	waits        bool   // with the parameter watch it waits for a push

	// overADS answers the type of its own that the page has over ADS. It is nil for a page that is asked for by name.
	overADS func(url.Values) ([]*anypb.Any, error)
}

// New makes the API.
func New(o Options) *API {
	o.Authorizer = cmp.Or(o.Authorizer, authorize.New(authorize.Options{}))
	most := o.Limits.DebugRequests
	a := &API{
		o: o, slots: quota.NewSlots[identity.Holder](most, quota.Share(most)),
		watchers: quota.NewSlots[identity.Holder](maxWatchers, quota.Share(maxWatchers)),
	}
	a.closing, a.close = context.WithCancel(context.Background())
	none := func(url.Values) (any, error) { return []struct{}{}, nil }
	a.pages = []page{
		{name: "adsz", about: "connected proxies and what they were sent by name; ?namespace=NAME, ?push=true",
			variant: "push=true", actsWith: "push", answer: a.adsz},
		{name: "ambientz", about: "ambient workloads, which this server does not have", answer: a.ambientz},
		{name: "authorizationz", about: "authorization policies by namespace, and by the proxies that they apply to", answer: a.authorizationz},
		{name: "cachez", about: "names of the encoded resources that are kept, by type; ?sizes=true: how large they are",
			variant: "sizes=true", answer: a.cachez},
		{name: "clusterz", about: "remote clusters", answer: a.clusterz},
		{name: "config_dump", about: "what one proxy was sent, as Envoy's own dump",
			proxy: true, ownProxyOnly: true, answer: a.configDump, overADS: a.dumpParts},
		{name: "configz", about: "configuration objects in force", answer: a.configz},
		{name: "connections", about: "connected proxies", answer: a.connections},
		{name: "ecdsz", about: "configurations of filters that one proxy was sent", proxy: true, answer: a.ecdsz},
		{name: "edsz", about: "endpoints of one proxy", proxy: true, ownProxyOnly: true, answer: a.edsz},
		{name: "endpointShardz", about: "endpoints by service and source", answer: a.endpointShardz},
		{name: "endpointz", about: "the same as endpointShardz", answer: a.endpointShardz},
		{name: "findings", about: "what is wrong with the configuration, with file, line and fix", answer: a.findings},
		{name: "inject", about: "injection templates", answer: a.inject},
		{name: "instancesz", about: "the ports of services that each proxy serves", answer: a.instancesz},
		{name: "krtz", about: "configuration objects in force, by kind", answer: a.krtz},
		{name: "limits", about: "limits in force", answer: a.limits},
		{name: "list", about: "the pages of this API", answer: a.list},
		{name: "mcsz", about: "multi-cluster services", answer: none},
		{name: "mesh", about: "mesh configuration", answer: a.mesh},
		{name: "ndsz", about: "name table of one proxy", proxy: true, ownProxyOnly: true, answer: a.ndsz},
		{name: "networkz", about: "network gateways", answer: a.networkz},
		{name: "push_status", about: "what the last push found, by metric", answer: a.pushStatus},
		{name: "pushcontext", about: "the snapshot in force in numbers, and what caused it", answer: a.pushContext},
		{name: "pushes", about: "the last pushes: what caused each, its stages, what was sent and rejected; ?since=ID, ?limit=N, ?watch",
			waits: true, answer: a.pushes},
		{name: "registryz", about: "services", answer: a.registryz},
		{name: replicasPage, about: "what each replica answers to one of a few pages; ?page=NAME, with that page's query", answer: a.replicas},
		{name: "resourcesz", about: "kinds that are watched", answer: a.resourcesz},
		{name: "sidecarz", about: "services and DestinationRules that one proxy sees, and its Sidecar", proxy: true, answer: a.sidecarz},
		{name: "syncz", about: "what each proxy was sent and has accepted", answer: a.syncz, overADS: a.clientConfigs},
		{name: "telemetryz", about: "Telemetry objects by namespace", answer: a.telemetryz},
	}
	if o.Server != nil {
		a.pages = append(a.pages, page{name: "why", about: "the way of a request; ?source=NAME.NAMESPACE&host=HOST&port=PORT", answer: o.Server.Why})
	}
	if o.Admin {
		a.pages = append(a.pages, page{name: "force_disconnect", about: "ends the stream of one proxy, which connects again", proxy: true, acts: true, answer: a.forceDisconnect})
	}
	slices.SortFunc(a.pages, func(x, y page) int { return cmp.Compare(x.name, y.name) })
	return a
}

// page returns the page of a name; the zero page if there is none.
func (a *API) page(name string) (p page, ok bool) {
	i, ok := slices.BinarySearchFunc(a.pages, name, func(p page, name string) int { return cmp.Compare(p.name, name) })
	if ok {
		p = a.pages[i]
	}
	return p, ok
}

// Errors that callers turn into codes of their protocol.
var (
	ErrUnknownPage  = errors.New("404 page not found")
	ErrNoProxyID    = errors.New("You must provide a proxyID in the query string") //nolint:staticcheck // the text that istioctl knows
	ErrBadQuery     = errors.New("the query is wrong")
	ErrNotConnected = errors.New("Proxy not connected to this Pilot instance. It may be connected to another instance.") //nolint:revive,staticcheck // likewise
)

// truth returns a parameter that is true or false; false without it. Another value is no answer to what was asked.
func truth(query url.Values, name string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	b, err := strconv.ParseBool(cmp.Or(query.Get(name), "true"))
	if err != nil {
		return false, fmt.Errorf("%w: %s=%.64q is neither true nor false", ErrBadQuery, name, query.Get(name))
	}
	return b, nil
}

// Close answers the requests that wait, so that they hold up no stop.
func (a *API) Close() { a.close() }

// plain is an answer that is text, and no JSON: that of a page which does something.
type plain string

// Answer returns the value of a page, to be written as JSON by encoding/json unless it is plain. query holds its
// parameters.
func (a *API) Answer(name string, query url.Values) (any, error) {
	p, ok := a.page(name)
	if !ok {
		return nil, ErrUnknownPage
	}
	if p.proxy && query.Get("proxyID") == "" {
		return nil, ErrNoProxyID
	}
	return p.answer(query)
}

func (a *API) list(url.Values) (any, error) {
	names := make([]string, 0, len(a.pages)+2)
	for _, p := range a.pages {
		names = append(names, p.name)
		if p.variant != "" {
			names = append(names, p.name+"?"+p.variant)
		}
	}
	return names, nil
}

func (a *API) findings(url.Values) (any, error) {
	return orEmpty(a.o.World.Findings()), nil
}

// limits shows every limit by name, durations as text.
func (a *API) limits(url.Values) (any, error) {
	out := map[string]any{}
	v := reflect.ValueOf(a.o.Limits)
	for i := range v.NumField() {
		value := v.Field(i).Interface()
		if d, ok := value.(time.Duration); ok {
			value = d.String()
		}
		out[v.Type().Field(i).Name] = value
	}
	return out, nil
}

// orEmpty keeps an empty list from being written as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
