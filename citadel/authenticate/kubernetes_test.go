package authenticate_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestRevoked refuses a token that was verified here once the API server has said that it does not accept it.
func TestRevoked(t *testing.T) {
	i := newIssuer(t, "k1")
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(i)
		accepts := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web",
			Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}
		now := accepts
		c.review = func(string) (authenticate.Review, error) { return now, nil }
		k := kubernetesOf(c, c)
		text := i.token(t, nil)
		ask := func() error {
			_, err := k.Authenticate(t.Context(), authenticate.Request{Token: text})
			synctest.Wait()
			return err
		}
		for range 3 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.reviews.Load(); n != 1 {
			t.Errorf("%d reviews", n)
		}
		now = authenticate.Review{}
		time.Sleep(5 * time.Minute)
		if err := ask(); err != nil { // and has the API server asked
			t.Error(err)
		}
		for range 3 {
			if err := ask(); err == nil || errors.Is(err, authenticate.ErrUnavailable) {
				t.Errorf("it is revoked: %v", err)
			}
		}
		now = accepts // the API server could not look up the pod for a while
		time.Sleep(11 * time.Second)
		if err := ask(); err == nil { // and has the API server asked
			t.Error("a token is accepted before the API server was asked")
		}
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
}

// TestClusters takes the word of a caller for whose token it shows, where there is such a cluster.
func TestClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		c := newCluster(i)
		c.review = func(string) (authenticate.Review, error) { return authenticate.Review{}, errors.New("away") }
		for name, want := range map[string]string{"": "one", "one": "one", "late": "unavailable", "two": "refused"} {
			p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil), Cluster: name})
			got := p.Bound.Cluster
			switch {
			case errors.Is(err, authenticate.ErrUnavailable):
				got = "unavailable"
			case err != nil:
				got = "refused"
			}
			if got != want {
				t.Errorf("%q: %s, %v", name, got, err)
			}
		}
	})
}

// TestReview asks the API server about tokens that cannot be checked here.
func TestReview(t *testing.T) {
	i := newIssuer(t, "k1")
	unbound := i.token(t, map[string]any{"kubernetes.io": nil})
	ok := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}}
	for name, x := range map[string]struct {
		review      authenticate.Review
		err         error
		unavailable bool
		good        bool
	}{
		"good":            {review: ok, good: true},
		"not accepted":    {review: authenticate.Review{Username: ok.Username, Audiences: ok.Audiences}},
		"no name":         {review: authenticate.Review{Authenticated: true, Audiences: ok.Audiences}},
		"no audiences":    {review: authenticate.Review{Authenticated: true, Username: ok.Username}},
		"another account": {review: authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:db", Audiences: ok.Audiences}},
		"another pod":     {review: authenticate.Review{Authenticated: true, Username: ok.Username, Audiences: ok.Audiences, PodUID: "3"}},
		"does not answer": {err: errors.New("500"), unavailable: true},
		"takes for ever":  {err: context.DeadlineExceeded, unavailable: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(i)
				c.review = func(string) (authenticate.Review, error) { return x.review, x.err }
				k := kubernetes(c)
				for range 3 {
					p, err := k.Authenticate(t.Context(), authenticate.Request{Token: unbound})
					if (err == nil) != x.good || errors.Is(err, authenticate.ErrUnavailable) != x.unavailable || x.good && p.ID != web {
						t.Fatalf("%+v, %v", p, err)
					}
				}
				if want := map[bool]int64{true: 3, false: 1}[x.unavailable]; c.reviews.Load() != want {
					t.Errorf("%d reviews: want %d: answers are cached, failures are not", c.reviews.Load(), want)
				}
			})
		})
	}
}

// TestPodIsNotKnownYet has the API server judge a token whose pod is not known.
func TestPodIsNotKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		for _, synced := range []bool{false, true} {
			c := newCluster(i)
			c.synced, c.pods = synced, nil
			c.review = func(string) (authenticate.Review, error) {
				return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web",
					Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2", Node: "n2"}, nil
			}
			p, err := kubernetes(c).Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)})
			if err != nil || p.Bound.Node != "n2" || c.reviews.Load() != 1 {
				t.Errorf("%+v, %v, %d reviews", p, err, c.reviews.Load())
			}
		}
	})
}

// TestForgedTokensCostFewReviews floods an authenticator that does not know its cluster's keys with tokens that anybody
// could have made.
func TestForgedTokensCostFewReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		c := newCluster(i)
		c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") })
		k := kubernetes(c)
		split := strings.Split(i.token(t, nil), ".")
		for n := range 2000 {
			forged := split[0] + "." + split[1] + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "signature %d", n))
			if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: forged}); err == nil {
				t.Fatalf("%+v", p)
			}
		}
		if n := c.reviews.Load(); n > 100 {
			t.Errorf("%d reviews", n)
		}
	})
}

// TestHangingClusterHoldsUpNoOther: while the API server of one cluster answers no review, however many callers wait
// for it, callers of another cluster are checked at once.
func TestHangingClusterHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		unbound := i.token(t, map[string]any{"kubernetes.io": nil})
		const callers = 200
		var waiting sync.WaitGroup
		waiting.Add(50) // as many as are asked about at once, a tenth of them by each account
		hanging, good := newCluster(i), newCluster(i)
		release := make(chan struct{})
		hanging.review = func(string) (authenticate.Review, error) {
			waiting.Done()
			<-release
			return authenticate.Review{}, errors.New("timeout")
		}
		good.review = func(string) (authenticate.Review, error) {
			return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}}, nil
		}
		k := kubernetesOf(byName{"hanging": hanging, "good": good}, good)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for n := range callers {
			text := i.token(t, map[string]any{"kubernetes.io": nil, "sub": fmt.Sprintf("system:serviceaccount:a:web-%d", n%20)})
			all.Go(func() {
				if _, err := k.Authenticate(ctx, authenticate.Request{Token: text, Cluster: "hanging"}); !errors.Is(err, authenticate.ErrUnavailable) {
					t.Errorf("%v", err)
				}
			})
		}
		waiting.Wait()
		if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: unbound, Cluster: "good"}); err != nil || p.ID != web {
			t.Errorf("%+v, %v", p, err)
		}
		leave()
		close(release)
		all.Wait()
	})
}

// TestReviewsOfOneAccount checks that an account whose tokens wait for reviews that hang, however many they are, has a
// tenth of the reviews, so that the token of another account is reviewed at once; and that tokens whose signature is
// not verified are those of their address, whatever account they name.
func TestReviewsOfOneAccount(t *testing.T) {
	for what, known := range map[string]bool{"verified": true, "not verified": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t, "k1")
				c := newCluster(i)
				if !known {
					c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") })
				}
				flood, other := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")
				if known {
					other = flood // the account is what differs
				}
				good := i.token(t, map[string]any{"kubernetes.io": nil})
				release := make(chan struct{})
				var hanging, most atomic.Int64
				c.review = func(text string) (authenticate.Review, error) {
					if text == good {
						return authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web", Audiences: []string{"istio-ca"}}, nil
					}
					most.Store(max(most.Load(), hanging.Add(1)))
					<-release
					hanging.Add(-1)
					return authenticate.Review{}, errors.New("timeout")
				}
				k := kubernetes(c)
				var all sync.WaitGroup
				for n := range 40 {
					sub := "system:serviceaccount:a:flood"
					if !known {
						sub += fmt.Sprint(n)
					}
					text := i.token(t, map[string]any{"kubernetes.io": nil, "sub": sub, "jti": fmt.Sprint(n)})
					all.Go(func() {
						_, err := k.Authenticate(t.Context(), authenticate.Request{Token: text, Address: flood})
						if !errors.Is(err, authenticate.ErrUnavailable) {
							t.Errorf("%v", err)
						}
					})
				}
				for hanging.Load() < 5 {
					time.Sleep(time.Millisecond)
				}
				if p, err := k.Authenticate(t.Context(), authenticate.Request{Token: good, Address: other}); err != nil || p.ID != web {
					t.Errorf("%+v, %v", p, err)
				}
				close(release)
				all.Wait()
				if n := most.Load(); n > 5 {
					t.Errorf("%d reviews of one account at a time", n)
				}
			})
		})
	}
}

// TestRechecksOfOneAccount checks that while the reviews of one account's verified tokens hang, the verified token of
// another account is reviewed too.
func TestRechecksOfOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		c := newCluster(i)
		c.pods["a/flood-0"] = identity.Pod{UID: "3", ServiceAccount: "flood"}
		release, reviewed := make(chan struct{}), make(chan string, 100)
		c.review = func(text string) (authenticate.Review, error) {
			reviewed <- text
			<-release
			return authenticate.Review{}, errors.New("timeout")
		}
		k := kubernetes(c)
		for n := range 10 {
			text := i.token(t, map[string]any{"sub": "system:serviceaccount:a:flood", "jti": fmt.Sprint(n),
				"kubernetes.io": map[string]any{"pod": map[string]any{"name": "flood-0", "uid": "3"}}})
			if _, err := k.Authenticate(t.Context(), authenticate.Request{Token: text}); err != nil {
				t.Fatal(err)
			}
		}
		<-reviewed
		good := i.token(t, nil)
		if _, err := k.Authenticate(t.Context(), authenticate.Request{Token: good}); err != nil {
			t.Fatal(err)
		}
		if text := <-reviewed; text != good {
			t.Error("another token of the same account is reviewed")
		}
		close(release)
	})
}

// TestPodGoesAfterAReview: a token that only the API server can judge is not good any more once its pod is gone, though
// it was accepted just before.
func TestPodGoesAfterAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		c := newCluster(i)
		c.keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("forbidden") })
		good := authenticate.Review{Authenticated: true, Username: "system:serviceaccount:a:web",
			Audiences: []string{"istio-ca"}, Pod: "web-0", PodUID: "2"}
		c.review = func(string) (authenticate.Review, error) { return good, nil }
		k := kubernetes(c)
		ask := func() error {
			_, err := k.Authenticate(t.Context(), authenticate.Request{Token: i.token(t, nil)})
			return err
		}
		for range 5 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.reviews.Load(); n != 1 {
			t.Errorf("%d reviews", n)
		}
		c.pods, good = nil, authenticate.Review{}
		if err := ask(); err == nil || errors.Is(err, authenticate.ErrUnavailable) {
			t.Errorf("the token of a pod that is gone: %v", err)
		}
	})
}

// TestKeysRotate follows an issuer that changes its key, and one that cannot be reached.
func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := newIssuer(t, "k1"), newIssuer(t, "k2")
		current, fail, fetches := old, false, 0
		s := authenticate.NewKeySet(func(context.Context) ([]byte, error) {
			if fetches++; fail {
				return nil, errors.New("unreachable")
			}
			return current.jwks(), nil
		})
		knows := func(id string) bool {
			k, err := s.Key(t.Context(), id)
			return err == nil && k != nil
		}
		if !knows("k1") || knows("k2") || fetches != 1 {
			t.Fatalf("%d fetches", fetches)
		}
		current = young
		if time.Sleep(59 * time.Second); knows("k2") || fetches != 1 {
			t.Error("fetched again within a minute")
		}
		if time.Sleep(time.Second); !knows("k2") || knows("k1") || fetches != 2 {
			t.Errorf("%d fetches", fetches)
		}
		fail = true
		if time.Sleep(23 * time.Hour); !knows("k2") {
			t.Error("the last good keys are gone")
		}
		time.Sleep(2 * time.Hour)
		if k, err := s.Key(t.Context(), "k2"); err == nil || k != nil || !strings.Contains(err.Error(), "unreachable") {
			t.Errorf("keys are too old and still good, or nobody learns why there are none: %v", err)
		}
	})
}

// byName are several clusters.
type byName map[string]*cluster

func (b byName) Get(id string) (authenticate.Cluster, bool, error) { return b[id], b[id] != nil, nil }
