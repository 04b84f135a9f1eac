package debug

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/nds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// Proxies are the connected proxies: an *xds.Server.
type Proxies interface {
	Clients() []xds.Client
	Dump(id, typeURL string) ([]*envoy.Resource, bool)
	Push()
	Disconnect(id string) bool
}

// proxy returns the stream of the proxy that proxyID names, as POD.NAMESPACE or by the ID of the stream.
func (a *API) proxy(query url.Values) (xds.Client, error) {
	id := query.Get("proxyID")
	clients := a.o.Proxies.Clients()
	// After a reconnect, a proxy may still have its old stream. The newest takes precedence.
	for _, c := range slices.Backward(clients) {
		if c.ID == id || c.Proxy.ID == id {
			return c, nil
		}
	}
	return xds.Client{}, ErrNotConnected
}

// ProxyStatus is the status of one proxy in syncz. The first fields are the ones that Istio's tools read.
type ProxyStatus struct {
	ClusterID            string                `json:"cluster_id,omitempty"`
	ProxyID              string                `json:"proxy,omitempty"`
	ProxyType            node.Type             `json:"proxy_type,omitempty"`
	IstioVersion         string                `json:"istio_version,omitempty"`
	ClusterSent          string                `json:"cluster_sent,omitempty"`
	ClusterAcked         string                `json:"cluster_acked,omitempty"`
	ListenerSent         string                `json:"listener_sent,omitempty"`
	ListenerAcked        string                `json:"listener_acked,omitempty"`
	RouteSent            string                `json:"route_sent,omitempty"`
	RouteAcked           string                `json:"route_acked,omitempty"`
	EndpointSent         string                `json:"endpoint_sent,omitempty"`
	EndpointAcked        string                `json:"endpoint_acked,omitempty"`
	ExtensionConfigSent  string                `json:"extensionconfig_sent,omitempty"`
	ExtensionConfigAcked string                `json:"extensionconfig_acked,omitempty"`
	Resources            map[string]TypeStatus `json:"resources,omitempty"`

	Version   string    `json:"version,omitempty"` // version of Istio's agent, or of Envoy without an agent
	Address   string    `json:"address"`
	Connected time.Time `json:"connectedAt"`
	// Waits says what an Envoy that starts waits for, or why a proxy is refused secrets.
	Waits string `json:"waits,omitempty"`
	// Replica names the replica that serves the proxy, if the answers of several replicas are merged.
	Replica string `json:"replica,omitempty"`
}

// TypeStatus is the status of one type of resource at one proxy.
type TypeStatus struct {
	Type       string     `json:"type"` // short name: cds, eds, lds, rds, ...
	State      State      `json:"state"`
	Subscribed string     `json:"subscribed"` // "all", or the number of names
	Sent       string     `json:"sent"`
	Acked      string     `json:"acked"`
	SentTime   *time.Time `json:"sentTime,omitempty"`
	AckedTime  *time.Time `json:"ackedTime,omitempty"`
	LastError  string     `json:"lastError,omitempty"`
	ErrorTime  *time.Time `json:"lastErrorTime,omitempty"`
}

// State compares the resources that a proxy was last sent with the ones that it has accepted.
type State string

// States, with istioctl's words.
const (
	Synced  State = "SYNCED"
	NotSent State = "NOT SENT"
	Stale   State = "STALE" // not acknowledged yet
	Failed  State = "ERROR" // rejected
)

// StatusOf converts the status of a type at a proxy.
func StatusOf(typeURL string, t session.TypeStatus) TypeStatus {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	s := TypeStatus{
		Type: envoy.ShortType(typeURL), State: Stale, Subscribed: strconv.Itoa(t.Names), Sent: t.Sent, Acked: t.Acked, SentTime: at(t.SentAt),
		AckedTime: at(t.AckedAt),
		LastError: t.LastError, ErrorTime: at(t.LastErrorAt),
	}
	if t.Wildcard {
		s.Subscribed = "all"
	}
	switch {
	case t.LastError != "":
		s.State = Failed
	case t.Sent == "":
		s.State = NotSent
	case t.Acked == t.Sent:
		s.State = Synced
	}
	return s
}

func (a *API) syncz(query url.Values) (any, error) {
	namespace := query.Get("namespace")
	out := []ProxyStatus{}
	for _, c := range a.o.Proxies.Clients() {
		if namespace != "" && c.Proxy.Namespace != namespace {
			continue
		}
		s := ProxyStatus{
			ClusterID: c.Proxy.Cluster, ProxyID: c.Proxy.ID, ProxyType: c.Proxy.Type, IstioVersion: c.Proxy.Version,
			ClusterSent: c.Types[envoy.ClusterType].Sent, ClusterAcked: c.Types[envoy.ClusterType].Acked,
			ListenerSent: c.Types[envoy.ListenerType].Sent, ListenerAcked: c.Types[envoy.ListenerType].Acked,
			RouteSent: c.Types[envoy.RouteType].Sent, RouteAcked: c.Types[envoy.RouteType].Acked,
			EndpointSent: c.Types[envoy.EndpointType].Sent, EndpointAcked: c.Types[envoy.EndpointType].Acked,
			ExtensionConfigSent: c.Types[envoy.ExtensionType].Sent, ExtensionConfigAcked: c.Types[envoy.ExtensionType].Acked,
			Resources: map[string]TypeStatus{},
			Version:   c.Proxy.Release(), Address: c.Address, Connected: c.Connected, Waits: c.Waits,
		}
		for typeURL, t := range c.Types {
			s.Resources[typeURL] = StatusOf(typeURL, t)
		}
		out = append(out, s)
	}
	return out, nil
}

// clients is the format of adsz and connections.
type clients[T any] struct {
	Total   int `json:"totalClients"`
	Clients []T `json:"clients"`
}

type client struct {
	ConnectionID string            `json:"connectionId"`
	ConnectedAt  time.Time         `json:"connectedAt"`
	Address      string            `json:"address"`
	Labels       map[string]string `json:"labels,omitempty"`
	Metadata     map[string]any    `json:"metadata,omitempty"`
	Locality     map[string]string `json:"locality"`

	Watches       map[string][]string     `json:"watches"` // names of the resources that it was sent, by type
	Subscriptions map[string]subscription `json:"subscriptions"`
	LeftOut       int                     `json:"watchesLeftOut,omitempty"` // number of names that are left out, see maxWatched
}

// connection is a client on the page connections.
type connection struct {
	ConnectionID string    `json:"connectionId"`
	ConnectedAt  time.Time `json:"connectedAt"`
	Address      string    `json:"address"`
}

// subscription is a client's subscription to a type.
type subscription struct {
	Wildcard bool `json:"wildcard"`
	Names    int  `json:"names"` // number of names
}

// maxWatched bounds the names of resources on the page adsz. With namespace=NAME it lists only the proxies of that
// namespace.
const maxWatched = 200_000

func (a *API) connections(url.Values) (any, error) {
	list := a.o.Proxies.Clients()
	out := clients[connection]{len(list), []connection{}}
	for _, c := range list {
		out.Clients = append(out.Clients, connection{c.ID, c.Connected, c.Address})
	}
	return out, nil
}

// adsz lists the connected proxies, or the ones of a namespace with namespace=NAME. With push=true it makes all of them
// compare their resources with the newest snapshot instead.
func (a *API) adsz(query url.Values) (any, error) {
	push, err := truth(query, "push")
	if err != nil {
		return nil, err
	}
	list := a.o.Proxies.Clients()
	if push {
		a.o.Proxies.Push()
		return plain(fmt.Sprintf("Pushed to %d clients", len(list))), nil
	}
	out := clients[client]{len(list), []client{}}
	room := maxWatched
	for _, c := range list {
		if ns := query.Get("namespace"); ns != "" && c.Proxy.Namespace != ns {
			continue
		}
		d := client{
			ConnectionID: c.ID, ConnectedAt: c.Connected, Address: c.Address, Labels: c.Proxy.Labels, Metadata: describeProxy(c.Proxy),
			Locality: map[string]string{}, Watches: map[string][]string{}, Subscriptions: map[string]subscription{},
		}
		for i, part := range []string{"region", "zone", "sub_zone"} {
			if c.Proxy.Locality[i] != "" {
				d.Locality[part] = c.Proxy.Locality[i]
			}
		}
		for _, typeURL := range slices.Sorted(maps.Keys(c.Types)) {
			t := c.Types[typeURL]
			d.Subscriptions[typeURL] = subscription{t.Wildcard, t.Names}
			sent, _ := a.o.Proxies.Dump(c.ID, typeURL)
			names := lists.Map(sent, func(r *envoy.Resource) string { return r.Name })
			if len(names) > room {
				d.LeftOut += len(names) - room
				names = names[:room]
			}
			room -= len(names)
			d.Watches[typeURL] = names
		}
		out.Clients = append(out.Clients, d)
	}
	return out, nil
}

// forceDisconnect ends the streams of one proxy.
func (a *API) forceDisconnect(query url.Values) (any, error) {
	if !a.o.Proxies.Disconnect(query.Get("proxyID")) {
		return nil, ErrNotConnected
	}
	return "OK", nil
}

// describeProxy returns the known parts of a node's metadata, by their names there.
func describeProxy(p *node.Proxy) map[string]any {
	all := map[string]any{
		"CLUSTER_ID": p.Cluster, "NAMESPACE": p.Namespace, "NETWORK": p.Network, "NODE_NAME": p.NodeName, "WORKLOAD_NAME": p.Workload,
		"SERVICE_ACCOUNT": p.Account, "MESH_ID": p.MeshID, "INTERCEPTION_MODE": string(p.Interception), "ISTIO_VERSION": p.Version,
		"ISTIO_REVISION": p.Revision, "INSTANCE_IPS": strings.Join(p.IPs, ","), "GENERATOR": p.Generator,
	}
	for k, v := range all {
		if v == "" {
			delete(all, k)
		}
	}
	if len(p.Labels) > 0 {
		all["LABELS"] = p.Labels
	}
	return all
}

// configDump returns the resources that one proxy was sent, in the format of Envoy's config_dump.
func (a *API) configDump(query url.Values) (any, error) {
	dump, err := a.dump(query)
	if err != nil {
		return nil, err
	}
	return SentJSON(dump)
}

// ecdsz returns the extension configurations that one proxy was sent.
func (a *API) ecdsz(query url.Values) (any, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	dump := &adminv3.ConfigDump{}
	list, _ := a.o.Proxies.Dump(c.ID, envoy.ExtensionType)
	for _, r := range list {
		dump.Configs = append(dump.Configs, &anypb.Any{TypeUrl: envoy.ExtensionType, Value: r.Value()})
	}
	return SentJSON(dump)
}

// dump returns the resources that one proxy was sent, in the format of Envoy's config_dump.
func (a *API) dump(query url.Values) (*adminv3.ConfigDump, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	sent := func(typeURL string) []*anypb.Any {
		list, _ := a.o.Proxies.Dump(c.ID, typeURL)
		return lists.Map(list, func(r *envoy.Resource) *anypb.Any { return &anypb.Any{TypeUrl: typeURL, Value: r.Value()} })
	}
	version := func(typeURL string) string { return c.Types[typeURL].Version }
	at := func(typeURL string) *timestamppb.Timestamp {
		if t := c.Types[typeURL].SentAt; !t.IsZero() {
			return timestamppb.New(t)
		}
		return nil
	}

	clusters := &adminv3.ClustersConfigDump{VersionInfo: version(envoy.ClusterType)}
	for _, r := range sent(envoy.ClusterType) {
		clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{
			VersionInfo: clusters.VersionInfo, Cluster: r, LastUpdated: at(envoy.ClusterType),
		})
	}
	listeners := &adminv3.ListenersConfigDump{VersionInfo: version(envoy.ListenerType)}
	names, _ := a.o.Proxies.Dump(c.ID, envoy.ListenerType)
	for i, r := range sent(envoy.ListenerType) {
		l := &adminv3.ListenersConfigDump_DynamicListener{ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{
			VersionInfo: listeners.VersionInfo, Listener: r, LastUpdated: at(envoy.ListenerType),
		}}
		if i < len(names) {
			l.Name = names[i].Name
		}
		listeners.DynamicListeners = append(listeners.DynamicListeners, l)
	}
	routes := &adminv3.RoutesConfigDump{}
	for _, r := range sent(envoy.RouteType) {
		routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{
			VersionInfo: version(envoy.RouteType), RouteConfig: r, LastUpdated: at(envoy.RouteType),
		})
	}
	parts := []proto.Message{clusters, listeners, routes}
	if list, _ := a.o.Proxies.Dump(c.ID, envoy.SecretType); len(list) > 0 {
		secrets := &adminv3.SecretsConfigDump{}
		for _, r := range list { // without their content
			secrets.DynamicActiveSecrets = append(secrets.DynamicActiveSecrets, &adminv3.SecretsConfigDump_DynamicSecret{
				Name: r.Name, VersionInfo: version(envoy.SecretType), LastUpdated: at(envoy.SecretType),
			})
		}
		parts = append(parts, secrets)
	}
	if list := sent(envoy.ExtensionType); len(list) > 0 {
		extensions := &adminv3.EcdsConfigDump{}
		for _, r := range list {
			extensions.EcdsFilters = append(extensions.EcdsFilters, &adminv3.EcdsConfigDump_EcdsFilterConfig{
				VersionInfo: version(envoy.ExtensionType), EcdsFilter: r, LastUpdated: at(envoy.ExtensionType),
			})
		}
		parts = append(parts, extensions)
	}
	if query.Has("include_eds") {
		endpoints := &adminv3.EndpointsConfigDump{}
		for _, r := range sent(envoy.EndpointType) {
			endpoints.DynamicEndpointConfigs = append(endpoints.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{
				VersionInfo: version(envoy.EndpointType), EndpointConfig: r, LastUpdated: at(envoy.EndpointType),
			})
		}
		parts = append(parts, endpoints)
	}
	dump := &adminv3.ConfigDump{}
	wanted := query["types"]
	for _, m := range parts {
		packed, err := anypb.New(m)
		if err != nil {
			return nil, err
		}
		if len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool { return strings.Contains(packed.TypeUrl, w) }) {
			dump.Configs = append(dump.Configs, packed)
		}
	}
	return dump, nil
}

// edsz returns the endpoints that one proxy was sent.
func (a *API) edsz(query url.Values) (any, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	out := messages{Configs: []json.RawMessage{}}
	list, _ := a.o.Proxies.Dump(c.ID, envoy.EndpointType)
	for _, r := range list {
		text, err := SentJSON(&anypb.Any{TypeUrl: envoy.EndpointType, Value: r.Value()})
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, text)
	}
	return out, nil
}

// messages is istiod's format for a proxy's resources with their types.
type messages struct {
	Configs []json.RawMessage `json:"configs"`
}

// nameTables is istiod's format for the name table of a proxy.
type nameTables struct {
	Configs []nameTable `json:"configs,omitempty"`
}

type nameTable struct {
	Type  string              `json:"@type"`
	Table map[string]nds.Info `json:"table,omitempty"`
}

// ndsz returns the name table of one proxy. It is empty if the proxy has not requested one.
func (a *API) ndsz(query url.Values) (any, error) {
	c, err := a.proxy(query)
	if err != nil {
		return nil, err
	}
	var out nameTables
	list, _ := a.o.Proxies.Dump(c.ID, envoy.NameTableType)
	for _, r := range list {
		table, err := nds.Read(r.Value())
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, nameTable{envoy.NameTableType, table})
	}
	return out, nil
}
