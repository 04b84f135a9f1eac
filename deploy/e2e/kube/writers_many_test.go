package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/autoregistration"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// view is a cache of the cluster, a little behind, as with informers.
type view struct {
	mu      sync.Mutex
	objects map[kinds.Key]*kinds.Object
}

func (v *view) follow(ctx context.Context, l live) {
	for ctx.Err() == nil {
		objects := map[kinds.Key]*kinds.Object{}
		key := kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "vm", Name: "reviews"}
		objects[key] = l.Object(key)
		for _, o := range l.ObjectsOf(kinds.WorkloadEntry) {
			objects[o.Key] = o
		}
		v.mu.Lock()
		v.objects = objects
		v.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
	}
}

func (v *view) Object(k kinds.Key) *kinds.Object {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.objects[k]
}

func (v *view) ObjectsOf(*kinds.Kind) []*kinds.Object { return nil }

// counted counts requests by method.
type counted struct {
	next http.RoundTripper
	mu   sync.Mutex
	by   map[string]int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.by[r.Method]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// TestAThousandMachinesAtOnce: machines that connect at once are all registered with one request each, at the default
// rate of requests to the API server.
func TestAThousandMachinesAtOnce(t *testing.T) {
	t.Parallel()
	n := 1000
	if testing.Short() {
		n = 200
	}
	w, access := account(t)
	ctx, c := w.Ctx, w.Cluster
	must.Succeed(t, c.Apply(ctx, []byte(group)))
	requests := &counted{by: map[string]int{}}
	config := access.Config()
	config.QPS, config.Burst = crd.DefaultQPS, crd.DefaultBurst
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { requests.next = next; return requests })
	store, err := autoregistration.NewKubernetes(config)
	must.Succeed(t, err)
	v := &view{}
	following, enough := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { v.follow(following, live{ctx, c}) })
	group := kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "vm", Name: "reviews"}
	w.Eventually("the group is seen", func() error {
		if v.Object(group) == nil {
			return fmt.Errorf("no %v", group)
		}
		return nil
	})
	r := autoregistration.New(autoregistration.Options{Store: store, Instance: "istiod-a", World: v, Grace: time.Minute,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	running.Go(func() { _ = r.Run(following) })
	defer running.Wait()
	defer enough()

	began := time.Now()
	var connected sync.WaitGroup
	for i := range n {
		client := stream(fmt.Sprint(i))
		client.Proxy.IPs = []string{fmt.Sprintf("10.9.%d.%d", i/250, i%250)}
		connected.Go(func() {
			if err := r.Connected(ctx, client); err != nil {
				t.Errorf("machine %s: %v", client.ID, err)
			}
		})
	}
	connected.Wait()
	took := time.Since(began)
	list, err := c.Dynamic().Resource(resource(kinds.WorkloadEntry)).Namespace("vm").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != n {
		t.Errorf("%d entries, %v", len(list.Items), err)
	}
	requests.mu.Lock()
	defer requests.mu.Unlock()
	t.Logf("%d machines in %v, requests %v", n, took.Round(time.Millisecond), requests.by)
	if requests.by[http.MethodPost] != n || requests.by[http.MethodPatch] != 0 {
		t.Errorf("requests %v", requests.by)
	}
}
