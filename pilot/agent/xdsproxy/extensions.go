package xdsproxy

import (
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// maxBackoff is the maximum time between two attempts to fetch missing extensions.
const maxBackoff = 5 * time.Minute

// fetcher fetches the extensions of one stream in the order of the responses, and sends them to Envoy. Extensions
// that are still incomplete then are fetched again, while new responses are handled. It is owned by one goroutine.
type fetcher struct {
	s     *stream
	nonce string // of the latest response

	// missing has the incomplete resources of delta responses, in their original form.
	missing map[string]*discoveryv3.Resource
	// world is the latest state-of-the-world response in its original form, or nil if all of it is complete.
	world *discoveryv3.DiscoveryResponse
	count int // number of incomplete extensions in world

	// generation counts the responses. Results of attempts for older responses are ignored.
	generation int
	backoff    time.Duration
	timer      *time.Timer
	result     chan retryResult
}

// retryResult is the result of another attempt.
type retryResult struct {
	generation int
	r          *response
	incomplete []bool
	err        error
}

// fetch runs until the stream ends.
func (s *stream) fetch() error {
	f := &fetcher{s: s, missing: map[string]*discoveryv3.Resource{}, timer: time.NewTimer(maxBackoff), result: make(chan retryResult, 1)}
	f.timer.Stop()
	defer f.timer.Stop()
	for {
		var err error
		select {
		case <-s.ctx.Done():
			return nil
		case r := <-s.extensions:
			err = f.handle(r)
		case <-f.timer.C:
			f.retry()
		case done := <-f.result:
			err = f.handleRetry(done)
		}
		if err != nil {
			return err
		}
	}
}

// handle sends a response of the control plane to Envoy.
func (f *fetcher) handle(r *response) error {
	s := f.s
	original := make([][]byte, len(r.resources))
	for i, a := range r.resources {
		original[i] = a.GetValue()
	}
	incomplete, err := s.p.replace(s.ctx, r.resources)
	if err != nil {
		if s.ctx.Err() != nil {
			return nil //nolint:nilerr // the session ended
		}
		s.p.o.Log.Warn("rejected extensions", "err", err)
		s.mu.Lock()
		version, names := s.versions[extensionType], s.names
		s.nonce = r.nonce
		s.mu.Unlock()
		s.request(r.reply(version, names, err))
		return nil
	}
	if r.sotw != nil {
		s.mu.Lock()
		s.versions[extensionType], s.nonce = r.sotw.GetVersionInfo(), ""
		s.mu.Unlock()
	}
	f.setMissing(r, original, incomplete)
	return f.send(r)
}

// setMissing records which extensions of a response are incomplete.
func (f *fetcher) setMissing(r *response, original [][]byte, incomplete []bool) {
	f.generation++
	f.nonce, f.count = r.nonce, 0
	if r.sotw != nil {
		if f.world = nil; count(incomplete) > 0 {
			f.world, f.count = proto.CloneOf(r.sotw), count(incomplete)
			for i, a := range f.world.GetResources() {
				a.Value = original[i]
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
			if delete(f.missing, x.GetName()); incomplete[i] {
				f.missing[x.GetName()] = proto.CloneOf(x)
				f.missing[x.GetName()].Resource.Value = original[i]
			}
			i++
		}
	}
	f.backoff = f.s.p.o.MinBackoff
	f.schedule()
}

// schedule starts the timer for the next attempt, if extensions are incomplete.
func (f *fetcher) schedule() {
	if f.timer.Stop(); f.world != nil || len(f.missing) > 0 {
		f.timer.Reset(f.backoff)
		f.backoff = min(2*f.backoff, maxBackoff)
	}
}

// retry fetches incomplete extensions in a goroutine.
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
	generation := f.generation
	safe.Go(f.s.p.o.Log, "xds extensions", func() {
		incomplete, err := f.s.p.replace(f.s.ctx, r.resources)
		select {
		case f.result <- retryResult{generation, r, incomplete, err}:
		case <-f.s.ctx.Done():
		}
	})
}

// handleRetry sends Envoy the extensions that are complete now. The response has the nonce of the latest response, so
// that the control plane accepts Envoy's acknowledgement.
func (f *fetcher) handleRetry(done retryResult) error {
	switch {
	case done.generation != f.generation:
		return nil
	case done.err != nil:
		f.schedule()
		return nil //nolint:nilerr // it is tried again
	}
	if done.r.sotw != nil {
		if left := count(done.incomplete); left == f.count {
			f.schedule()
			return nil
		} else if f.count = left; left == 0 {
			f.world = nil
		}
	} else {
		var there []*discoveryv3.Resource
		for i, x := range done.r.delta.GetResources() {
			if !done.incomplete[i] {
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

// count returns the number of true values.
func count(list []bool) (n int) {
	for _, v := range list {
		if v {
			n++
		}
	}
	return n
}
