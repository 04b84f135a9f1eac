package xds

import (
	"cmp"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/node"
)

// missing has the proxies that Pods run and that are not connected: see Server.Expect. Its methods are called with
// server.mu held.
type missing struct {
	by    map[departedProxy]absence
	first []Owing // the first maxMissing of them by name; nil if by has changed since
	swept time.Time
}

// absence is what is known of a missing proxy.
type absence struct {
	workload workload
	since    time.Time
}

const (
	// maxMissing bounds the missing proxies that are listed.
	maxMissing = 100
	// sweepTime is the minimum time between two searches for missing proxies whose Pods are gone.
	sweepTime = time.Second
)

// forget forgets a proxy, if it is missing.
func (m *missing) forget(k departedProxy) {
	if _, is := m.by[k]; is {
		delete(m.by, k)
		m.first = nil
	}
}

// Expect records the proxies that Pods run and that are not connected. They may have configuration from another
// process, which has ended, and are expected to connect to this server or to another one. Publish calls Expect for the
// first snapshot.
func (s *Server) Expect() {
	s.mu.Lock()
	latest := s.latest
	s.mu.Unlock()
	if latest == nil {
		return
	}
	by, now := map[departedProxy]absence{}, time.Now()
	for w := range s.o.World.Running(latest) {
		by[departedProxy{w.Name + "." + w.Namespace, w.Cluster}] = absence{workload{w.WorkloadKey, w.Created}, now}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.profile.workload {
			delete(by, departedOf(c.proxy))
		}
	}
	for k, d := range s.departures.by {
		if x, ok := by[k]; ok && d.workload.equal(&x.workload) {
			delete(by, k)
		}
	}
	for k, x := range s.missing.by {
		if is, ok := by[k]; ok && is.workload.equal(&x.workload) {
			by[k] = x
		}
	}
	s.missing.by, s.missing.first = by, nil
}

// Missing returns the number of proxies that Pods run and that have connected to no server since Expect was called.
// list has the first of them by name, and not more than most. They lack all revisions.
func (s *Server) Missing(most int) (list []Owing, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, now := &s.missing, time.Now()
	if len(m.by) > 0 && (m.first == nil || now.Sub(m.swept) >= sweepTime) {
		s.sweepMissing(now)
	}
	return slices.Clone(m.first[:min(len(m.first), most)]), len(m.by)
}

// sweepMissing forgets the missing proxies whose Pods are gone, and lists the first of the others.
func (s *Server) sweepMissing(now time.Time) {
	m := &s.missing
	m.first, m.swept = []Owing{}, now
	var p node.Proxy
	for k, x := range m.by {
		p = node.Proxy{ID: k.id, Cluster: k.cluster, Name: x.workload.key.Name, Namespace: x.workload.key.Namespace}
		if !x.workload.equal(workloadOf(s.o.World, s.latest, &p)) {
			delete(m.by, k)
			continue
		}
		o := Owing{
			Proxy: k.id, Cluster: k.cluster, Since: x.since, State: Departed,
			Message: "its Pod runs, and it has not connected as a proxy of the cluster " + k.cluster + " since a control plane started or ended",
		}
		if now.Sub(x.since) > awayTime {
			o.State = Silent
		}
		m.first = append(m.first, o)
	}
	slices.SortFunc(m.first, func(a, b Owing) int { return cmp.Compare(a.Name(), b.Name()) })
	m.first = slices.Clone(m.first[:min(len(m.first), maxMissing)])
}

// startMissing makes a missing proxy a departed one, because it has begun a stream that resumes no earlier one. The
// caller holds mu.
func (s *Server) startMissing(p *node.Proxy) {
	k := departedOf(p)
	if x, is := s.missing.by[k]; is {
		s.missing.forget(k)
		d := departure{proxy: p, known: true, workload: &x.workload, at: x.since}
		s.departures.add(d, func(x *departure) bool { return s.fateOf(x, s.latest, time.Now()) == forgotten })
	}
}
