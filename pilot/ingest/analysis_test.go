package ingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Of changes that come together, and of endpoints that come and go all the time, the objects are not looked at for
// each.
func TestAnalysisIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestWorld(t, Options{Client: &rest.Config{}}) // of a cluster
		s.apply(serviceIn("a"))
		a := NewAnalyst(s.World)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		for range 100 {
			a.Notice([]kinds.Change{{Key: kinds.Key{Kind: kinds.EndpointSlice}}})
			time.Sleep(analysisRest)
		}
		if a.runs.Load() != 0 {
			t.Errorf("looked %d times for endpoints alone", a.runs.Load())
		}
		for range 100 {
			a.Notice([]kinds.Change{{Key: kinds.Key{Kind: kinds.EndpointSlice}}, {Key: kinds.Key{Kind: kinds.Service}}})
		}
		time.Sleep(10 * analysisRest)
		if a.runs.Load() != 1 {
			t.Errorf("looked %d times for changes that came together", a.runs.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
