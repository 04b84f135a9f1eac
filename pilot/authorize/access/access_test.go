package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// servers is a fake of the API servers of all clusters.
type servers func(ctx context.Context, cluster string, id identity.ID) (bool, error)

func (s servers) Get(cluster string) (Ask, bool, error) {
	return func(ctx context.Context, id identity.ID) (bool, error) { return s(ctx, cluster, id) }, true, nil
}

func TestMain(m *testing.M) { leaks.Main(m) }

// TestReviews checks that an answer is used for a short time, that a watched identity is reviewed again, and that a
// failed review changes nothing.
func TestReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
		var mu sync.Mutex // guards the variables below
		allowed, failure, asked, notified := false, error(nil), 0, 0
		set := func(a bool, err error) {
			mu.Lock()
			defer mu.Unlock()
			allowed, failure, asked = a, err, 0
		}
		counts := func() (int, int) {
			mu.Lock()
			defer mu.Unlock()
			return asked, notified
		}
		r := New(Options{Servers: servers(func(_ context.Context, cluster string, id identity.ID) (bool, error) {
			if id != web || cluster != "far" {
				t.Errorf("asked for %v in %q", id, cluster)
			}
			mu.Lock()
			defer mu.Unlock()
			asked++
			return allowed, failure
		})})
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
			if a, k := r.Allowed("far", web); a != wantAllowed || k != wantKnown {
				t.Errorf("%s: allowed %v, known %v", what, a, k)
			}
			synctest.Wait()
		}
		is("nobody watches", false, false)
		stop := r.Watch("far", web, func() {
			mu.Lock()
			defer mu.Unlock()
			notified++
		})
		is("an answer", false, true)
		if asked, notified := counts(); asked != 1 || notified != 1 {
			t.Errorf("asked %d times, notified %d times", asked, notified)
		}
		set(true, nil)
		time.Sleep(6 * time.Second) // a denied identity is reviewed again soon
		is("allowed", true, true)
		time.Sleep(6 * time.Second)
		is("an old answer", false, false) // requests a review
		is("a new answer", true, true)

		set(true, errors.New("internal error"))
		time.Sleep(40 * time.Second)
		is("a failure", false, false)
		if asked, _ := counts(); asked < 3 {
			t.Errorf("asked %d times in an outage", asked)
		}
		set(true, nil)
		time.Sleep(2 * time.Second)
		is("after a failure", true, true)

		set(false, nil)
		time.Sleep(31 * time.Second)
		is("withdrawn", false, true)
		stop()
		stop()
		time.Sleep(time.Minute)
		set(false, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked, _ := counts(); asked > 0 || len(r.reviews) > 0 {
			t.Errorf("asked %d times for nobody, and %d are known", asked, len(r.reviews))
		}
		cancel()
		<-ended
	})
}

// TestClusterThatHangs checks that an API server that does not answer delays no review in another cluster, however
// many identities are reviewed there.
func TestClusterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Servers: servers(func(ctx context.Context, cluster string, _ identity.ID) (bool, error) {
			if cluster == "near" {
				return true, nil
			}
			<-ctx.Done()
			return false, ctx.Err()
		})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		id := func(i int) identity.ID {
			return identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: fmt.Sprint("web-", i)}
		}
		const many = 4 * maxOpen
		for i := range many {
			r.Watch("far", id(i), func() {})
		}
		synctest.Wait()
		r.mu.Lock()
		if n := r.open["far"]; n != maxOpen {
			t.Errorf("%d questions about one cluster are open", n)
		}
		r.mu.Unlock()
		r.Watch("near", id(0), func() {})
		synctest.Wait()
		if allowed, known := r.Allowed("near", id(0)); !allowed || !known {
			t.Errorf("allowed %v, known %v", allowed, known)
		}
		if _, known := r.Allowed("far", id(0)); known {
			t.Error("what one cluster says counts in another")
		}
		time.Sleep(time.Minute)
		r.mu.Lock()
		for s, x := range r.reviews {
			if s.cluster == "far" && !x.failed {
				t.Errorf("nobody asked about %v", s.id)
			}
		}
		r.mu.Unlock()
		cancel()
		<-ended
	})
}

// TestDenied checks that an identity is denied if the API server denies it, even if it also allows it.
func TestDenied(t *testing.T) {
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{%s}}`, answer)
	}))
	defer server.Close()
	ask, err := AskServer(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}})
	must.Succeed(t, err)
	for text, want := range map[string]bool{
		`"allowed":true`: true, `"allowed":false`: false, ``: false, `"allowed":true,"denied":true`: false, `"denied":true`: false,
	} {
		answer = text
		if got, err := ask(t.Context(), identity.ID{Namespace: "a", ServiceAccount: "web"}); got != want || err != nil {
			t.Errorf("{%s}: %v, %v", text, got, err)
		}
	}
}

// TestQuestionThatPanics checks that a review that panics is repeated, any number of times.
func TestQuestionThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := 0
		r := New(Options{Servers: servers(func(context.Context, string, identity.ID) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked <= 2*maxOpen {
				panic("bad JSON")
			}
			return true, nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
		defer r.Watch("far", web, func() {})()
		time.Sleep(time.Duration(2*maxOpen) * time.Second)
		synctest.Wait()
		if allowed, known := r.Allowed("far", web); !allowed || !known {
			t.Errorf("allowed %v, known %v", allowed, known)
		}
		cancel()
		<-ended
	})
}

// TestOneOwnCluster checks that the server's own cluster is asked once about an identity, by either name.
func TestOneOwnCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		r := New(Options{ClusterID: "own", Servers: servers(func(_ context.Context, cluster string, _ identity.ID) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, cluster)
			return true, nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
		defer r.Watch("", web, func() {})()
		defer r.Watch("own", web, func() {})()
		synctest.Wait()
		for _, cluster := range []string{"", "own"} {
			if allowed, known := r.Allowed(cluster, web); !allowed || !known {
				t.Errorf("%q: allowed %v, known %v", cluster, allowed, known)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 1 || asked[0] != "own" {
			t.Errorf("asked about %q", asked)
		}
		cancel()
		<-ended
	})
}
