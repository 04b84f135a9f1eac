package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Push makes a stream compare its resources with a snapshot, and has the reasons. Pending pushes are merged into one
// for the newest snapshot. A Push is immutable, because many streams share it.
type Push struct {
	Snapshot    *snapshot.Snapshot
	First       uint64 // revision of the earliest merged snapshot; later than Snapshot if the push is not because of any
	Full        bool   // compare everything, except for Same
	Same        Types  // types whose resources are the same, unless the stream belongs to another cohort
	Objects     bool   // objects changed without effect on proxies
	Secrets     bool   // objects that secrets are made of changed
	OnlySecrets bool   // nothing else changed
	// ReassignsOnly is true if proxies may belong to other cohorts, and the resources of each cohort are unchanged.
	ReassignsOnly bool
	Workloads     []registry.WorkloadKey
	Addresses     []snapshot.ClusterAddress
	Triggers      map[string]int
	Received      time.Time // arrival of the first change; zero if there is none
	Queued        time.Time // publication of the first push
	// Tally counts the responses. It is the Tally of the newest merged push, or nil.
	Tally *pushes.Tally
}

// Types is a set of types.
type Types uint64

// With returns the set with a type. A type that is not known is never in it.
func (t Types) With(kind *envoy.Type) Types {
	if !kind.Known() {
		return t
	}
	return t | 1<<envoy.TypeIndex(kind.URL)
}

// Has reports whether a type is in the set.
func (t Types) Has(kind *envoy.Type) bool {
	return kind.Known() && t&(1<<envoy.TypeIndex(kind.URL)) != 0
}

// maxMerged bounds the workloads and addresses in a merged push. Beyond that, everything is compared.
const maxMerged = 4096

// NewPush returns the push of a snapshot.
func NewPush(s *snapshot.Snapshot, now time.Time) *Push {
	d := &s.Diff
	return &Push{
		Snapshot: s, First: s.Revision, Full: d.Full, Objects: d.Objects, Secrets: d.Secrets, OnlySecrets: d.OnlySecrets(),
		Workloads: d.Workloads, Addresses: d.Addresses, Triggers: d.Triggers, Received: d.Received, Queued: now,
	}
}

// NewFullPush returns a push for which a stream compares all its resources.
func NewFullPush(s *snapshot.Snapshot, now time.Time) *Push {
	return &Push{Snapshot: s, First: s.Revision, Full: true, Queued: now}
}

// Merge returns a push that replaces p, which is pending, and a newer one.
func (p *Push) Merge(newer *Push) *Push {
	if p == nil {
		return newer
	}
	m := &Push{
		Snapshot:    newer.Snapshot,
		First:       min(p.First, newer.First),
		Full:        p.Full || newer.Full,
		Same:        p.Same & newer.Same,
		Objects:     p.Objects || newer.Objects,
		Secrets:     p.Secrets || newer.Secrets,
		OnlySecrets: p.OnlySecrets && newer.OnlySecrets,

		ReassignsOnly: p.ReassignsOnly && newer.ReassignsOnly,

		Workloads: union(p.Workloads, newer.Workloads),
		Addresses: union(p.Addresses, newer.Addresses),
		Triggers:  p.Triggers,
		Received:  p.Received,
		Queued:    p.Queued,
		Tally:     newer.Tally,
	}
	m.Tally = cmp.Or(m.Tally, p.Tally)
	if m.Received.IsZero() || !newer.Received.IsZero() && newer.Received.Before(m.Received) {
		m.Received = newer.Received
	}
	if len(newer.Triggers) > 0 {
		m.Triggers = maps.Clone(newer.Triggers)
		for reason, n := range p.Triggers {
			m.Triggers[reason] += n
		}
	}
	if len(m.Workloads)+len(m.Addresses) > maxMerged {
		m.Full = true
	}
	if m.Full {
		m.Workloads, m.Addresses = nil, nil
	}
	return m
}

// Changes reports whether resources of a type may have changed, independent of the proxy's workload.
func (p *Push) Changes(t *envoy.Type) bool {
	return p.Full || t.Live && !p.OnlySecrets || t.Secret && p.Secrets
}

// MayReassign reports whether a client may belong to another cohort than last, its cohort at an earlier revision. It
// returns true if the translator panics.
func (p *Push) MayReassign(t Translator, client *node.Proxy, last cohort.Key, since uint64) (yes bool) {
	if p.concerns(client) || !p.Full {
		return p.concerns(client)
	}
	err := safe.Do("translate cohort", func() { yes = t.NeedsReassign(p.Snapshot, client, last, since) })
	return yes || err != nil
}

// concerns reports whether a proxy may serve a changed workload, or have a changed address. The proxy's ID identifies a
// pod; other workloads are matched by namespace only.
func (p *Push) concerns(proxy *node.Proxy) bool {
	return slices.ContainsFunc(p.Workloads, func(k registry.WorkloadKey) bool {
		return proxy.ID == k.Name+"."+k.Namespace || k.Kind != kinds.Pod && k.Namespace == proxy.Namespace
	}) || slices.ContainsFunc(p.Addresses, func(a snapshot.ClusterAddress) bool {
		return a.Cluster == p.Snapshot.ClusterKey(proxy.Cluster) && slices.Contains(proxy.IPs, a.Address)
	})
}

func union[K comparable](a, b []K) []K {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	seen := make(map[K]struct{}, len(a))
	for _, k := range a {
		seen[k] = struct{}{}
	}
	out := slices.Clip(a)
	for _, k := range b {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			out = append(out, k)
		}
	}
	return out
}
