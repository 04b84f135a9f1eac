package xdsproxy

import (
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// longestRetry is the longest wait between two tries of what is missing of extensions.
const longestRetry = 5 * time.Minute

// fetcher has the extensions of one stream fetched, in the order they came in, and sends them on. Those for which Envoy
// was sent something else meanwhile are fetched again, beside those that come. One goroutine owns it.
type fetcher struct {
	s     *stream
	nonce string // of the latest response

	// what is missing, as it came: some resources, or the whole state of the world
	missing map[string]*discoveryv3.Resource
	world   *discoveryv3.DiscoveryResponse
	count   int // of extensions that are missing in world

	// round is that of the latest response; results of older ones do not count.
	round  int
	wait   time.Duration
	timer  *time.Timer
	result chan retried
}

// retried is what became of another try.
type retried struct {
	round int
	r     *response
	again []bool
	err   error
}

// fetch runs until the stream ends.
func (s *stream) fetch() error {
	f := &fetcher{s: s, missing: map[string]*discoveryv3.Resource{}, timer: time.NewTimer(longestRetry), result: make(chan retried, 1)}
	f.timer.Stop()
	defer f.timer.Stop()
	for {
		var err error
		select {
		case <-s.ctx.Done():
			return nil
		case r := <-s.extensions:
			err = f.take(r)
		case <-f.timer.C:
			f.retry()
		case done := <-f.result:
			err = f.tried(done)
		}
		if err != nil {
			return err
		}
	}
}

// take sends Envoy a response of the control plane.
func (f *fetcher) take(r *response) error {
	s := f.s
	came := make([][]byte, len(r.resources))
	for i, a := range r.resources {
		came[i] = a.GetValue()
	}
	again, err := s.p.replace(s.ctx, r.resources)
	if err != nil {
		if s.ctx.Err() != nil {
			return nil
		}
		s.p.o.Log.Warn("extensions are rejected", "err", err)
		s.mu.Lock()
		version, names := s.versions[extensionType], s.names
		s.nonce = r.nonce
		s.mu.Unlock()
		s.request(r.answer(version, names, err))
		return nil
	}
	if r.sotw != nil {
		s.mu.Lock()
		s.versions[extensionType], s.nonce = r.sotw.GetVersionInfo(), ""
		s.mu.Unlock()
	}
	f.keep(r, came, again)
	return f.send(r)
}

// keep remembers what is missing of a response, in the place of what was.
func (f *fetcher) keep(r *response, came [][]byte, again []bool) {
	f.round++
	f.nonce, f.count = r.nonce, 0
	if r.sotw != nil {
		if f.world = nil; count(again) > 0 {
			f.world, f.count = proto.CloneOf(r.sotw), count(again)
			for i, a := range f.world.GetResources() {
				a.Value = came[i]
			}
		}
	} else {
		for _, name := range r.delta.GetRemovedResources() {
			delete(f.missing, name)
		}
		i := 0
		for _, x := range r.delta.GetResources() {
			if x.GetResource() == nil {
				continue
			}
			if delete(f.missing, x.GetName()); again[i] {
				f.missing[x.GetName()] = proto.CloneOf(x)
				f.missing[x.GetName()].Resource.Value = came[i]
			}
			i++
		}
	}
	f.wait = f.s.p.o.Retry
	f.schedule()
}

// schedule has what is missing fetched again after the wait.
func (f *fetcher) schedule() {
	if f.timer.Stop(); f.world != nil || len(f.missing) > 0 {
		f.timer.Reset(f.wait)
		f.wait = min(2*f.wait, longestRetry)
	}
}

// retry has what is missing fetched, by a goroutine.
func (f *fetcher) retry() {
	r := &response{typeURL: extensionType, nonce: f.nonce}
	if f.world != nil {
		r.sotw = proto.CloneOf(f.world)
		r.resources = r.sotw.GetResources()
	} else {
		r.delta = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extensionType, Nonce: f.nonce}
		for _, x := range f.missing {
			r.delta.Resources = append(r.delta.Resources, proto.CloneOf(x))
			r.resources = append(r.resources, r.delta.Resources[len(r.delta.Resources)-1].GetResource())
		}
	}
	round := f.round
	safe.Go(f.s.p.o.Log, "xds extensions", func() {
		again, err := f.s.p.replace(f.s.ctx, r.resources)
		select {
		case f.result <- retried{round, r, again, err}:
		case <-f.s.ctx.Done():
		}
	})
}

// tried sends Envoy what could be fetched now. The nonce is that of the latest response, which Envoy's answer is for.
func (f *fetcher) tried(done retried) error {
	switch {
	case done.round != f.round:
		return nil
	case done.err != nil:
		f.schedule()
		return nil
	}
	if done.r.sotw != nil {
		if left := count(done.again); left == f.count {
			f.schedule()
			return nil
		} else if f.count = left; left == 0 {
			f.world = nil
		}
	} else {
		var there []*discoveryv3.Resource
		for i, x := range done.r.delta.GetResources() {
			if !done.again[i] {
				there = append(there, x)
				delete(f.missing, x.GetName())
			}
		}
		if done.r.delta.Resources = there; len(there) == 0 {
			f.schedule()
			return nil
		}
	}
	f.schedule()
	return f.send(done.r)
}

func (f *fetcher) send(r *response) error {
	m, err := encode(r.message())
	if err != nil {
		return &ended{byUpstream, err}
	}
	select {
	case f.s.toEnvoy <- m:
	case <-f.s.ctx.Done():
	}
	return nil
}

// count returns how many are true.
func count(list []bool) (n int) {
	for _, v := range list {
		if v {
			n++
		}
	}
	return n
}
