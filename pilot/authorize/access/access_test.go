package access

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReviews: an answer counts for a moment, a watched identity is asked for again, and a failure changes nothing.
func TestReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
		allowed, failure, asked := false, error(nil), 0
		r := New(Options{Ask: func(_ context.Context, id identity.ID) (bool, error) {
			if id != web {
				t.Errorf("asked for %v", id)
			}
			asked++
			return allowed, failure
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		is := func(what string, wantAllowed, wantKnown bool) {
			t.Helper()
			synctest.Wait()
			if a, k := r.Allowed(web); a != wantAllowed || k != wantKnown {
				t.Errorf("%s: allowed %v, known %v", what, a, k)
			}
			synctest.Wait()
		}
		is("nobody watches", false, false)
		notified := 0
		stop := r.Watch(web, func() { notified++ })
		is("an answer", false, true)
		if asked != 1 || notified != 1 {
			t.Errorf("asked %d times, notified %d times", asked, notified)
		}
		allowed = true
		time.Sleep(6 * time.Second) // who is not allowed is asked for soon again
		is("allowed", true, true)
		time.Sleep(6 * time.Second)
		is("an old answer", false, false) // which is asked for at once
		is("a new answer", true, true)

		failure, asked = errors.New("internal error"), 0
		time.Sleep(40 * time.Second)
		is("a failure", false, false)
		if asked < 3 {
			t.Errorf("asked %d times in an outage", asked)
		}
		failure, asked = nil, 0
		time.Sleep(2 * time.Second)
		is("after a failure", true, true)

		allowed = false
		time.Sleep(31 * time.Second)
		is("withdrawn", false, true)
		stop()
		stop()
		time.Sleep(time.Minute)
		asked = 0
		time.Sleep(time.Minute)
		if asked > 0 || len(r.known) > 0 {
			t.Errorf("asked %d times for nobody, and %d are known", asked, len(r.known))
		}
		cancel()
		<-ended
	})
}
