package leader

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPresenceLastsAsLongAsItsLease checks that a process is present while it renews its lease, even if observers are
// cut off. It is gone some time after it was killed, and at once when it was stopped.
func TestPresenceLastsAsLongAsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		options := func(instance string) Options {
			return Options{Client: &rest.Config{Host: "http://api", Transport: a.as(instance)}, Namespace: "istio-system", Identity: instance}
		}
		start := func(instance string) (*Presence, func()) {
			p, err := NewPresence(options(instance))
			must.Succeed(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.Run(ctx) }()
			return p, func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		forbid := func(method string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.forbid = method
		}
		o, err := NewObserver(options("looks"))
		must.Succeed(t, err)
		const who = "Laptop-17_"
		gone := func() bool { return o.Gone(t.Context(), who) }
		if !gone() {
			t.Error("who never was is there")
		}
		a.set(who, "refuse")
		p, stop := start(who)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if p.Wait(short) == nil {
			t.Error("it is there without a lease")
		}
		forbid(http.MethodPost)
		a.set(who, "")
		time.Sleep(cacheTTL)
		if list := p.Findings(); len(list) != 1 || !strings.HasPrefix(list[0].Message, "this server registers no workloads") {
			t.Errorf("it may not write its lease: %v", list)
		}
		forbid("")
		must.Succeed(t, p.Wait(t.Context()))
		if a.path != "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/istio-instance-laptop-17" {
			t.Error(a.path)
		}
		time.Sleep(cacheTTL)
		for range 100 {
			if gone() {
				t.Fatal("who renews its lease is gone")
			}
			time.Sleep(7 * time.Second)
		}
		forbid(http.MethodGet)
		time.Sleep(cacheTTL)
		if gone() || len(o.Findings()) != 1 {
			t.Errorf("it may not look: %v", o.Findings())
		}
		forbid("")
		time.Sleep(cacheTTL)
		if gone() || len(o.Findings()) > 0 {
			t.Errorf("it may look again: %v", o.Findings())
		}
		a.set("looks", "refuse")
		time.Sleep(time.Hour)
		if gone() {
			t.Error("gone, by somebody who cannot look")
		}
		a.set("looks", "")
		time.Sleep(time.Minute)
		if gone() {
			t.Error("gone, though it renews its lease")
		}
		a.set(who, "hang") // like a killed process
		time.Sleep(cacheTTL)
		if gone() {
			t.Error("gone at once")
		}
		time.Sleep(12 * time.Second)
		if !gone() {
			t.Error("not gone 12 s after it was last seen")
		}
		a.set(who, "")
		time.Sleep(30 * time.Second)
		if gone() {
			t.Error("gone, though it is back")
		}
		stop()
		time.Sleep(cacheTTL)
		if !gone() || a.lease != nil {
			t.Errorf("it was stopped, and is there: %v", a.lease)
		}
	})
}

func TestPresenceNames(t *testing.T) {
	for instance, want := range map[string]string{
		"a.b-1_": "istio-instance-a.b-1", "_": "istio-instance", "a..b": "istio-instance-a.b",
		"A-._b.": "istio-instance-a.b", "..-": "istio-instance",
	} {
		if got := presenceName(instance); got != want {
			t.Errorf("%q: %q, want %q", instance, got, want)
		}
	}
	if long := presenceName(strings.Repeat("host", 100)); len(long) > 253 {
		t.Errorf("%q", long)
	}
}
