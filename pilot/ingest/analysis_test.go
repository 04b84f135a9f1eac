package ingest

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		a.Committed(nil) // the first commit
		time.Sleep(2 * analysisRest)
		first := a.runs.Load()
		for range 100 {
			a.Committed([]kinds.Change{{Key: kinds.Key{Kind: kinds.EndpointSlice}}})
			time.Sleep(analysisRest)
		}
		if first != 1 || a.runs.Load() != first {
			t.Errorf("analysed %d times after the first commit, %d times after endpoints alone", first, a.runs.Load())
		}
		for range 100 {
			a.Committed([]kinds.Change{{Key: kinds.Key{Kind: kinds.EndpointSlice}}, {Key: kinds.Key{Kind: kinds.Service}}})
		}
		time.Sleep(10 * analysisRest)
		if a.runs.Load() != first+1 {
			t.Errorf("looked %d times for changes that came together", a.runs.Load())
		}
		node := func(region, address string) {
			n := &kinds.Object{Key: kinds.Key{Kind: kinds.Node, Name: "n"}, Labels: map[string]string{"topology.kubernetes.io/region": region}}
			n.Spec = &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
			a.Committed([]kinds.Change{{Key: n.Key, Object: n}})
			time.Sleep(10 * analysisRest)
		}
		for i, place := range []string{"r1", "r1", "r2"} {
			if node(place, "10.0.0."+strconv.Itoa(i)); a.runs.Load() != first+[]int64{2, 2, 3}[i] {
				t.Errorf("looked %d times after a Node changed %d times", a.runs.Load(), i+1)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
