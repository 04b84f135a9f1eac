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

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Options of the debug API: where its pages read. Each function may be called from any goroutine.
type Options struct {
	Snapshot func() *snapshot.Snapshot // the last one published, or nil before the first
	Objects  func() []*kinds.Object    // every configuration object in force
	Findings func() []diag.Diagnostic  // what is wrong with configuration, of every source
	Proxies  Proxies
	Pushes   *pushes.Log // nil: none are recorded
	// Selected returns the objects of a kind that apply to a proxy's workload; nil: unknown.
	Selected func(s *snapshot.Snapshot, p *node.Proxy, kind *kinds.Kind) []*kinds.Object
	// Visible returns what a proxy sees, and what returns the DestinationRules of one of its services; nil: unknown.
	Visible   func(s *snapshot.Snapshot, p *node.Proxy) (*scope.Scope, func(*registry.Service) []*kinds.Object)
	Cache     func() Cache                  // what is kept of encoded resources; nil: nothing
	Why       func(url.Values) (any, error) // the way of a request; nil: nobody follows it
	Templates func() map[string]string      // of injection, by name; nil: there are none
	Clusters  func() any                    // the remote clusters, as JSON; nil: there are none
	// Conflicts returns what does not get what it asks for, by the name of the metric that counts it; nil: unknown.
	Conflicts func() map[string][]string
	Cluster   string // id of the cluster that the server runs in
	Domain    string // of that cluster: cluster.local
	Limits    limits.Limits

	Authorizer *authorize.Authorizer // who may read pages; nil: as by the zero authorize.Options
	// Authenticate returns the peer that proves by a bearer token over HTTP who it is; nil: only addresses count.
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
	proxy       bool // wants proxyID
	answer      func(url.Values) (any, error)
}

// New makes the API.
func New(o Options) *API {
	if o.Authorizer == nil {
		o.Authorizer = authorize.New(authorize.Options{})
	}
	most := o.Limits.DebugRequests
	a := &API{
		o: o, slots: quota.NewSlots[identity.Holder](most, quota.Share(most)),
		watchers: quota.NewSlots[identity.Holder](maxWatchers, quota.Share(maxWatchers)),
	}
	a.closing, a.close = context.WithCancel(context.Background())
	none := func(url.Values) (any, error) { return []struct{}{}, nil }
	a.pages = []page{
		{"adsz", "connected proxies and what they were sent by name; ?namespace=NAME, ?push=true", false, a.adsz},
		{"ambientz", "ambient workloads, which this server does not have", false, a.ambientz},
		{"authorizationz", "authorization policies by namespace, and by the proxies that they apply to", false, a.authorizationz},
		{"cachez", "names of the encoded resources that are kept, by type; ?sizes=true: how large they are", false, a.cachez},
		{"clusterz", "remote clusters", false, a.clusterz},
		{"config_dump", "what one proxy was sent, as Envoy's own dump", true, a.configDump},
		{"configz", "configuration objects in force", false, a.configz},
		{"connections", "connected proxies", false, a.connections},
		{"ecdsz", "configurations of filters that one proxy was sent", true, a.ecdsz},
		{"edsz", "endpoints of one proxy", true, a.edsz},
		{"endpointShardz", "endpoints by service and source", false, a.endpointShardz},
		{"endpointz", "the same as endpointShardz", false, a.endpointShardz},
		{"findings", "what is wrong with the configuration, with file, line and fix", false, a.findings},
		{"inject", "injection templates", false, a.inject},
		{"instancesz", "the ports of services that each proxy serves", false, a.instancesz},
		{"krtz", "configuration objects in force, by kind", false, a.krtz},
		{"limits", "limits in force", false, a.limits},
		{"list", "the pages of this API", false, a.list},
		{"mcsz", "multi-cluster services", false, none},
		{"mesh", "mesh configuration", false, a.mesh},
		{"ndsz", "name table of one proxy", true, a.ndsz},
		{"networkz", "network gateways", false, a.networkz},
		{"push_status", "what the last push found, by metric", false, a.pushStatus},
		{"pushcontext", "the snapshot in force in numbers, and what caused it", false, a.pushContext},
		{"pushes", "the last pushes: what caused each, its stages, what was sent and rejected; ?since=ID, ?limit=N, ?watch", false, a.pushes},
		{"registryz", "services", false, a.registryz},
		{"resourcesz", "kinds that are watched", false, a.resourcesz},
		{"sidecarz", "services and DestinationRules that one proxy sees, and its Sidecar", true, a.sidecarz},
		{"syncz", "what each proxy was sent and has accepted", false, a.syncz},
		{"telemetryz", "Telemetry objects by namespace", false, a.telemetryz},
	}
	if o.Why != nil {
		a.pages = append(a.pages, page{"why", "the way of a request; ?source=NAME.NAMESPACE&host=HOST&port=PORT", false, o.Why})
	}
	if o.Admin {
		i, _ := slices.BinarySearchFunc(a.pages, "force_disconnect", byName)
		a.pages = slices.Insert(a.pages, i, page{"force_disconnect", "ends the stream of one proxy, which connects again", true, a.forceDisconnect})
	}
	return a
}

func byName(p page, name string) int { return cmp.Compare(p.name, name) }

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
	i, ok := slices.BinarySearchFunc(a.pages, name, byName)
	if !ok {
		return nil, ErrUnknownPage
	}
	p := a.pages[i]
	if p.proxy && query.Get("proxyID") == "" {
		return nil, ErrNoProxyID
	}
	return p.answer(query)
}

func (a *API) list(url.Values) (any, error) {
	names := make([]string, 0, len(a.pages)+2)
	for _, p := range a.pages {
		names = append(names, p.name)
		switch p.name {
		case "adsz":
			names = append(names, "adsz?push=true")
		case "cachez":
			names = append(names, "cachez?sizes=true")
		}
	}
	return names, nil
}

func (a *API) findings(url.Values) (any, error) {
	return orEmpty(a.o.Findings()), nil
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
