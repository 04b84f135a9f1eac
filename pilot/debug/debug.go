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

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// World is the configuration that pages show. Its methods must be safe for concurrent use.
type World interface {
	// Snapshot returns the newest snapshot, or nil before the first.
	Snapshot() *snapshot.Snapshot
	// Objects returns every accepted or derived object, in no order.
	Objects() []*kinds.Object
	// Origin returns the object that a derived object with that key was made of, or else the object with that key, or
	// nil.
	Origin(kinds.Key) *kinds.Object
	// Findings returns the findings about configuration of all sources.
	Findings() []diag.Diagnostic
}

// Translator makes the resources of proxies: a *translate.Translator. Its methods must be safe for concurrent use.
type Translator interface {
	// Selected returns the objects of a kind that apply to a proxy's workload.
	Selected(s *snapshot.Snapshot, p *node.Proxy, kind *kinds.Kind) []*kinds.Object
	// Visible returns the services that a proxy sees, and a function that returns the DestinationRules of a service for
	// it.
	Visible(s *snapshot.Snapshot, p *node.Proxy) (*scope.Scope, func(*registry.Service) []*kinds.Object)
	// Stats returns the numbers of look-ups that found an encoded resource and that did not.
	Stats() (hits, misses uint64)
	// Kept returns the number of cached encoded resources.
	Kept() int
	// Each calls yield with every cached encoded resource except secrets.
	Each(yield func(*envoy.Resource))
	// AllConflicts returns the listeners and hosts that a conflict removes, by metric.
	AllConflicts() map[string][]string
}

// Server is the rest of the control plane. Its methods must be safe for concurrent use.
type Server interface {
	// Why traces a request, and returns the trace as JSON.
	Why(url.Values) (any, error)
	// Templates returns the templates of injection, by name.
	Templates() map[string]string
	// Clusters returns the clusters that the server reads, as JSON.
	Clusters() any
	// Current returns a question about the version that the API server has of an object now. The error is ErrBadQuery if
	// no API server is read.
	Current(ctx context.Context, k kinds.Key) (progress.Question, error)
}

// Options configure the debug API.
type Options struct {
	World      World
	Proxies    Proxies
	Pushes     *pushes.Log       // nil if pushes are not recorded
	Progress   *progress.Tracker // nil if it is not known what is in force
	Translator Translator        // nil if there is no translation
	Server     Server            // nil if there is no control plane: then there is no page why
	Cluster    string            // ID of the server's own cluster
	Domain     string            // domain of that cluster, such as cluster.local
	// MultiCluster are the settings for the Multi-Cluster Services API.
	MultiCluster clusterset.Options
	Limits       limits.Limits
	Replicas     Replicas // nil if the server has no other replicas
	Name         string   // name of this replica
	Version      string   // version of the build

	// Authorizer decides which peer may read which page. Nil for the zero authorize.Options.
	Authorizer *authorize.Authorizer
	// Authenticate returns the peer that a bearer token over HTTP identifies. If it is nil, only addresses identify
	// peers.
	Authenticate func(ctx context.Context, address netip.AddrPort, token string) (identity.Peer, error)

	Admin   bool // serve force_disconnect, which ends streams
	Profile bool // serve pprof
}

// API is the debug API.
type API struct {
	o     Options
	pages []page
	slots *quota.Slots[identity.Holder] // bounds concurrent requests over HTTP

	watchers *quota.Slots[identity.Holder] // bounds requests over HTTP that wait for a push
	closing  context.Context
	close    context.CancelFunc
}

// page is one endpoint below /debug.
type page struct {
	name, about string
	variant     string // another query for the list of pages, or empty
	proxy       bool   // requires proxyID
	answer      func(url.Values) (any, error)

	ownProxyOnly bool   // accounts without full access may read it about proxies of their own namespace
	ownObject    bool   // accounts without full access may read it about objects of their own namespace
	acts         bool   // always changes something
	actsWith     string // the parameter with which it changes something, or empty
	waits        bool   // the parameter watch waits for a push

	// overADS answers the page's own type over ADS. It is nil if ADS clients request the page by name.
	overADS func(url.Values) ([]*anypb.Any, error)
}

// New returns the API.
func New(o Options) *API {
	o.Authorizer = cmp.Or(o.Authorizer, authorize.New(authorize.Options{}))
	most := o.Limits.DebugRequests
	a := &API{
		o: o, slots: quota.NewSlots[identity.Holder](most, quota.Share(most)),
		watchers: quota.NewSlots[identity.Holder](maxWatchers, quota.Share(maxWatchers)),
	}
	a.closing, a.close = context.WithCancel(context.Background())
	a.pages = []page{
		{name: "adsz", about: "connected proxies and the names of the resources that they were sent; ?namespace=NAME, ?push=true",
			variant: "push=true", actsWith: "push", answer: a.adsz},
		{name: "ambientz", about: "ambient workloads, which this server does not have", answer: a.ambientz},
		{name: "authorizationz", about: "authorization policies by namespace, and by the proxies that they apply to", answer: a.authorizationz},
		{name: "cachez", about: "names of the cached encoded resources by type; ?sizes=true: their sizes",
			variant: "sizes=true", answer: a.cachez},
		{name: "clusterz", about: "remote clusters", answer: a.clusterz},
		{name: "config_dump", about: "resources that one proxy was sent, in the format of Envoy's config_dump",
			proxy: true, ownProxyOnly: true, answer: a.configDump, overADS: a.dumpParts},
		{name: "configz", about: "configuration objects in force", answer: a.configz},
		{name: "connections", about: "connected proxies", answer: a.connections},
		{name: "ecdsz", about: "extension configurations that one proxy was sent", proxy: true, answer: a.ecdsz},
		{name: "edsz", about: "endpoints of one proxy", proxy: true, ownProxyOnly: true, answer: a.edsz},
		{name: "endpointShardz", about: "endpoints by service and source", answer: a.endpointShardz},
		{name: "endpointz", about: "the same as endpointShardz", answer: a.endpointShardz},
		{name: "findings", about: "findings about the configuration, with file, line and fix", answer: a.findings},
		{name: "inject", about: "injection templates", answer: a.inject},
		{name: "instancesz", about: "service ports that each proxy serves", answer: a.instancesz},
		{name: "krtz", about: "configuration objects in force, by kind", answer: a.krtz},
		{name: "limits", about: "limits in force", answer: a.limits},
		{name: "list", about: "the pages of this API", answer: a.list},
		{name: "mcsz", about: "ServiceExports and ServiceImports of all clusters", answer: a.mcsz},
		{name: "mesh", about: "mesh configuration", answer: a.mesh},
		{name: "ndsz", about: "name table of one proxy", proxy: true, ownProxyOnly: true, answer: a.ndsz},
		{name: "networkz", about: "network gateways", answer: a.networkz},
		{name: "push_status", about: "conflicts and missing endpoints of the last push, by metric", answer: a.pushStatus},
		{name: "pushcontext", about: "size and causes of the snapshot in force", answer: a.pushContext},
		{name: "pushes", about: "the last pushes with their causes, stages, responses and rejections; ?since=ID, ?limit=N, ?watch",
			waits: true, answer: a.pushes},
		{name: "registryz", about: "services", answer: a.registryz},
		{name: replicasPage, about: "a page as each replica answers it; ?page=NAME, with that page's query", answer: a.replicas},
		{name: "resourcesz", about: "kinds that are watched", answer: a.resourcesz},
		{name: "sidecarz", about: "services and DestinationRules that one proxy sees, and its Sidecar", proxy: true, answer: a.sidecarz},
		{name: "syncz", about: "sent and acknowledged versions of each proxy", answer: a.syncz, overADS: a.clientConfigs},
		{name: "telemetryz", about: "Telemetry objects by namespace", answer: a.telemetryz},
	}
	if o.Progress != nil {
		a.pages = append(
			a.pages,
			page{name: progress.InForcePage, about: "whether a version of an object is in force; ?object=KIND/NAME.NAMESPACE, " +
				"&generation=N, or current, &version=HASH, &deleted, &cluster=ID, &scope=self",
				ownObject: true, answer: a.inForce},
			page{name: progress.HistoryPage, about: "the last versions of an object; ?object=KIND/NAME.NAMESPACE, &cluster=ID, &scope=self",
				answer: a.history},
		)
	}
	if o.Server != nil {
		a.pages = append(
			a.pages, page{name: "why", about: "the trace of a request; ?source=NAME.NAMESPACE&host=HOST&port=PORT, or &log=LINE",
				answer: o.Server.Why},
		)
	}
	if o.Admin {
		a.pages = append(a.pages, page{
			name: "force_disconnect", about: "ends the streams of one proxy, which then reconnects", proxy: true, acts: true,
			answer: a.forceDisconnect,
		})
	}
	slices.SortFunc(a.pages, func(x, y page) int { return cmp.Compare(x.name, y.name) })
	return a
}

// page returns the page with a name. pages is sorted by name.
func (a *API) page(name string) (p page, ok bool) {
	i, ok := slices.BinarySearchFunc(a.pages, name, func(p page, name string) int { return cmp.Compare(p.name, name) })
	if ok {
		p = a.pages[i]
	}
	return p, ok
}

// Errors that callers convert to codes of their protocol.
var (
	ErrUnknownPage = errors.New("404 page not found")
	ErrNoProxyID   = errors.New("You must provide a proxyID in the query string") // istioctl expects this text
	ErrBadQuery    = errors.New("the query is wrong")
	//nolint:revive // istioctl expects this text
	ErrNotConnected = errors.New("Proxy not connected to this Pilot instance. It may be connected to another instance.")
)

// truth returns the boolean value of a parameter, or false if it is missing. Other values are an error.
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

// Close answers the waiting requests, so that they do not delay a shutdown.
func (a *API) Close() { a.close() }

// plain is the text of an answer that is not JSON, from a page that changes something.
type plain string

// Answer returns the value of a page, to be encoded with encoding/json unless it is plain. query has its parameters.
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

// limits returns every limit by name, with durations as text.
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

// orEmpty returns an empty list for nil, which JSON encodes as [] instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
