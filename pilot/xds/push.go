package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// push is why a stream has to compare what it has with a snapshot. Several that wait become one, for the newest
// snapshot. Never changed once made: one push waits at many streams.
type push struct {
	snapshot  *snapshot.Snapshot
	first     uint64 // revision of the earliest snapshot that it is for
	full      bool
	objects   bool // objects changed that are no proxy's
	workloads []registry.WorkloadKey
	addresses []snapshot.ClusterAddress
	triggers  map[string]int
	received  time.Time // when the first of the changes came in; zero where there is none
	queued    time.Time // when the first of the pushes was published
}

// maxMerged bounds the workloads that a waiting push lists: beyond, everything is compared.
const maxMerged = 4096

func newPush(s *snapshot.Snapshot, now time.Time) *push {
	d := &s.Diff
	return &push{snapshot: s, first: s.Revision, full: d.Full, objects: d.Objects, workloads: d.Workloads, addresses: d.Addresses, triggers: d.Triggers, received: d.Received, queued: now}
}

// everything has a stream compare all that it has with a snapshot.
func everything(s *snapshot.Snapshot) *push {
	return &push{snapshot: s, first: s.Revision, full: true, queued: time.Now()}
}

// merge returns one push that stands for p, which was waiting, and for a newer one.
func (p *push) merge(newer *push) *push {
	if p == nil {
		return newer
	}
	m := &push{
		snapshot:  newer.snapshot,
		first:     p.first,
		full:      p.full || newer.full,
		objects:   p.objects || newer.objects,
		workloads: union(p.workloads, newer.workloads),
		addresses: union(p.addresses, newer.addresses),
		triggers:  p.triggers,
		received:  p.received,
		queued:    p.queued,
	}
	if m.received.IsZero() || !newer.received.IsZero() && newer.received.Before(m.received) {
		m.received = newer.received
	}
	if len(newer.triggers) > 0 {
		m.triggers = maps.Clone(newer.triggers)
		for reason, n := range p.triggers {
			m.triggers[reason] += n
		}
	}
	if len(m.workloads)+len(m.addresses) > maxMerged {
		m.full = true
	}
	if m.full {
		m.workloads, m.addresses = nil, nil
	}
	return m
}

// concerns reports whether a proxy may run beside one of the workloads that changed, or at one of the addresses. A pod
// is identified by the proxy's id, other workloads by namespace alone.
func (p *push) concerns(proxy *node.Proxy) bool {
	return slices.ContainsFunc(p.workloads, func(k registry.WorkloadKey) bool {
		return proxy.ID == k.Name+"."+k.Namespace || k.Kind != kinds.Pod && k.Namespace == proxy.Namespace
	}) || slices.ContainsFunc(p.addresses, func(a snapshot.ClusterAddress) bool {
		return a.Cluster == p.snapshot.ClusterKey(proxy.Cluster) && slices.Contains(proxy.IPs, a.Address)
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
