package ui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// proxyRow is one connected proxy. Times are milliseconds of the Unix epoch, or 0 for never.
type proxyRow struct {
	ID        string      `json:"id"`
	Namespace string      `json:"namespace"`
	Type      string      `json:"type"`
	Cluster   string      `json:"cluster"`
	Version   string      `json:"version"`
	Address   string      `json:"address"`
	Connected int64       `json:"connected"`
	State     debug.State `json:"state"` // worst state of all types
	Waits     string      `json:"waits,omitempty"`
	Types     []typeState `json:"types"`
	Replica   string      `json:"replica,omitempty"` // the other replica that serves it; empty for this one
}

// typeState is the status of one type at a proxy.
type typeState struct {
	Type       string      `json:"type"`
	State      debug.State `json:"state"`
	Sent       int64       `json:"sent,omitempty"`
	Acked      int64       `json:"acked,omitempty"`
	Subscribed string      `json:"subscribed"`
	Error      string      `json:"error,omitempty"`
	ErrorTime  int64       `json:"errorTime,omitempty"`
}

func (r proxyRow) matches(text, namespace, state string) bool {
	return (namespace == "" || r.Namespace == namespace) && (state == "" || string(r.State) == state) &&
		(text == "" || strings.Contains(strings.ToLower(r.ID), text))
}

// makeProxies returns the rows of all proxies, the ones with rejections first.
func (u *UI) makeProxies() []proxyRow {
	clients := u.o.Proxies.Clients()
	list := make([]proxyRow, 0, len(clients))
	for i := range clients {
		if c := &clients[i]; c.Proxy.Generator == "" { // skip other control planes
			list = append(list, rowOf(c))
		}
	}
	list = append(list, u.elsewhere()...)
	slices.SortStableFunc(list, func(a, b proxyRow) int {
		return cmp.Or(cmp.Compare(trouble(a.State), trouble(b.State)), strings.Compare(a.ID, b.ID))
	})
	return list
}

// trouble orders states: rejections come first. A pending acknowledgement is normal.
func trouble(s debug.State) int {
	if s == debug.Failed {
		return 0
	}
	return 1
}

func rowOf(c *xds.Client) proxyRow {
	r := proxyRow{
		ID: c.Proxy.ID, Namespace: c.Proxy.Namespace, Type: string(c.Proxy.Type), Cluster: c.Proxy.Cluster, Version: c.Proxy.Release(),
		Address: c.Address, Connected: c.Connected.UnixMilli(), State: debug.NotSent, Waits: c.Waits, Types: make([]typeState, 0, len(c.Types)),
	}
	for typeURL, t := range c.Types {
		r.add(debug.StatusOf(typeURL, t))
	}
	r.sort()
	return r
}

// rowElsewhere returns the row of a proxy that another replica serves.
func rowElsewhere(p *debug.ProxyStatus) proxyRow {
	r := proxyRow{
		ID: p.ProxyID, Namespace: p.ProxyID[strings.LastIndexByte(p.ProxyID, '.')+1:], Type: string(p.ProxyType), Cluster: p.ClusterID,
		Version: p.Version,
		Address: p.Address, Connected: p.Connected.UnixMilli(), State: debug.NotSent, Waits: p.Waits, Types: []typeState{}, Replica: p.Replica,
	}
	for _, s := range p.Resources {
		r.add(s)
	}
	r.sort()
	return r
}

// add adds the status of a type. The state of the proxy is the worst of all types.
func (r *proxyRow) add(s debug.TypeStatus) {
	r.Types = append(r.Types, typeState{
		Type: s.Type, State: s.State, Sent: milli(s.SentTime), Acked: milli(s.AckedTime), Subscribed: s.Subscribed, Error: s.LastError,
		ErrorTime: milli(s.ErrorTime),
	})
	switch {
	case s.State == debug.Failed || r.State == debug.Failed:
		r.State = debug.Failed
	case s.State == debug.Stale || r.State == debug.Stale:
		r.State = debug.Stale
	default:
		r.State = debug.Synced
	}
}

// sort sorts the types in display order.
func (r *proxyRow) sort() {
	order := envoy.ShortTypes()
	slices.SortFunc(r.Types, func(a, b typeState) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Type), slices.Index(order, b.Type)), strings.Compare(a.Subscribed, b.Subscribed))
	})
}

func milli(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// summary is the header of the page.
type summary struct {
	Version   string         `json:"version"`
	Revision  uint64         `json:"revision"`
	Services  int            `json:"services"`
	Namespace []string       `json:"namespaces"`
	Proxies   map[string]int `json:"proxies"` // number by state, and "all"
	Findings  map[string]int `json:"findings"`
	Push      uint64         `json:"push"` // ID of the newest push
	Replicas  []replica      `json:"replicas,omitempty"`
}

func (u *UI) makeSummary() summary {
	s := summary{Version: u.o.Version, Proxies: map[string]int{}, Findings: map[string]int{}, Namespace: []string{}}
	list, _ := u.proxies.get(u.o.Now)
	namespaces := map[string]bool{}
	for i := range list {
		s.Proxies[string(list[i].State)]++
		s.Proxies["all"]++
		namespaces[list[i].Namespace] = true
	}
	found, _ := u.findings.get(u.o.Now)
	for i := range found {
		s.Findings[found[i].Severity.String()]++
	}
	if snap := u.o.World.Snapshot(); snap != nil {
		s.Revision, s.Services = snap.Revision, snap.ServiceCount()
		for svc := range snap.EachService {
			namespaces[svc.Namespace] = true
		}
	}
	for ns := range namespaces {
		s.Namespace = append(s.Namespace, ns)
	}
	slices.Sort(s.Namespace)
	s.Push, s.Replicas = u.o.Pushes.Newest(), u.replicas()
	return s
}
