package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// api is a fake API server that stores one lease and accepts writes to anything else. It runs in the process, so that
// time may be fake.
type api struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	cut     map[string]string // "hang" or "refuse", by instance
	writes  map[string]int    // number of writes to objects other than leases, by instance
	holders []string          // in order
	strayed []string          // writes of an instance while another held the lease
	path    string            // path at which the lease was first read
	forbid  string            // HTTP method that is forbidden
}

func newAPI() *api { return &api{cut: map[string]string{}, writes: map[string]int{}} }

func (a *api) set(instance, how string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut[instance] = how
}

func (a *api) holder() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == nil || a.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *a.lease.Spec.HolderIdentity
}

// as returns the transport of an instance to the server.
func (a *api) as(instance string) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		how := a.cut[instance]
		a.mu.Unlock()
		switch how {
		case "hang":
			<-r.Context().Done()
			return nil, r.Context().Err()
		case "refuse":
			return nil, errors.New("connection refused")
		}
		return a.answer(instance, r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *api) answer(instance string, r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := func(code int, v any) (*http.Response, error) {
		b, err := json.Marshal(v)
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
	}
	fail := func(code int, reason metav1.StatusReason) (*http.Response, error) {
		return reply(code, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code),
		})
	}
	if !strings.Contains(r.URL.Path, "/leases") {
		if r.Method != http.MethodGet {
			a.writes[instance]++
			if h := a.lease.Spec.HolderIdentity; h == nil || *h != instance {
				a.strayed = append(a.strayed, fmt.Sprintf("%s at %v", instance, time.Now()))
			}
		}
		return reply(200, struct{}{})
	}
	if a.path == "" {
		a.path = r.URL.Path
	}
	var sent coordinationv1.Lease
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return fail(400, metav1.StatusReasonBadRequest)
		}
	}
	switch {
	case r.Method == a.forbid:
		return fail(403, metav1.StatusReasonForbidden)
	case r.Method == http.MethodGet && a.lease == nil:
		return fail(404, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		return reply(200, a.lease)
	case r.Method == http.MethodDelete:
		a.lease = nil
		return reply(200, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	case r.Method == http.MethodPost && a.lease != nil:
		return fail(409, metav1.StatusReasonAlreadyExists)
	case r.Method == http.MethodPut && (a.lease == nil || sent.ResourceVersion != a.lease.ResourceVersion):
		return fail(409, metav1.StatusReasonConflict)
	}
	a.version++
	sent.ResourceVersion = strconv.Itoa(a.version)
	sent.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	a.lease = &sent
	if h := sent.Spec.HolderIdentity; h != nil && *h != "" && (len(a.holders) == 0 || a.holders[len(a.holders)-1] != *h) {
		a.holders = append(a.holders, *h)
	}
	return reply(200, a.lease)
}

func (a *api) instance(t *testing.T, name string) *Lease {
	t.Helper()
	l, err := New(Options{
		Client:    &rest.Config{Host: "http://api", Transport: a.as(name), ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		Namespace: "istio-system", Name: "istio-leader", Revision: "canary", Identity: name,
	})
	must.Succeed(t, err)
	return l
}

// work is the work of a leader in these tests: it writes all the time and ignores its context.
func (a *api) work(ctx context.Context, l *Lease, name string) {
	c := &http.Client{Transport: l.Guard(a.as(name))}
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://api/apis/anything", strings.NewReader("{}"))
		if err != nil {
			panic(err)
		}
		if resp, err := c.Do(r); err == nil {
			_ = resp.Body.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestOneLeaderAndARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		one, two := a.instance(t, "one"), a.instance(t, "two")
		ctx, stop := context.WithCancel(t.Context())
		ended, led := make(chan bool), make(chan string, 10)
		go func() {
			one.Run(ctx, func(ctx context.Context) {
				led <- "one"
				<-ctx.Done()
				time.Sleep(3 * time.Second) // it needs some time to stop
				if a.holder() != "one" {
					t.Error("the lease was released while its holder worked")
				}
			})
			close(ended)
		}()
		if got := <-led; got != "one" {
			t.Fatalf("%s leads", got)
		}
		a.mu.Lock()
		if !strings.HasSuffix(a.path, "/namespaces/istio-system/leases/istio-leader-canary") {
			t.Errorf("the lease is %s", a.path)
		}
		a.mu.Unlock()
		other, stopOther := context.WithCancel(t.Context())
		otherEnded := make(chan bool)
		go func() {
			two.Run(other, func(ctx context.Context) { led <- "two"; <-ctx.Done() })
			close(otherEnded)
		}()
		time.Sleep(time.Hour)
		if len(led) != 0 || !one.Valid() || two.Valid() {
			t.Fatalf("after an hour: %d new leaders, valid %v %v", len(led), one.Valid(), two.Valid())
		}
		stop()
		began := time.Now()
		<-ended
		if one.Valid() {
			t.Error("valid after the release")
		}
		if got := <-led; got != "two" || time.Since(began) > 7*time.Second {
			t.Errorf("%s leads after %v: a lease that is released is not waited for", got, time.Since(began))
		}
		stopOther()
		<-otherEnded
	})
}

// TestForbidden: a refused request is a finding that names the Lease and the rule. It goes once the request is allowed,
// or is not needed because another instance leads.
func TestForbidden(t *testing.T) {
	for method, verb := range map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI()
				log := &strings.Builder{}
				one, two := a.instance(t, "one"), a.instance(t, "two")
				one.o.Logger = slog.New(slog.NewTextHandler(log, nil))
				forbid := func(method string) {
					a.mu.Lock()
					defer a.mu.Unlock()
					a.forbid = method
				}
				found := func(want bool) {
					t.Helper()
					time.Sleep(time.Minute)
					synctest.Wait()
					list := one.Findings()
					if len(list) == 0 && !want {
						return
					}
					if len(list) != 1 || !want {
						t.Fatalf("findings: %v", list)
					}
					d := list[0]
					if d.Object != "Lease istio-system/istio-leader-canary" || !strings.Contains(d.Message, " to "+verb+" the Lease") ||
						!strings.Contains(d.Fix, "apiGroups [coordination.k8s.io], resources [leases] and verbs ["+verb+
							"] to a Role in namespace istio-system") {
						t.Error(d)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				lead := func(l *Lease) { wg.Go(func() { l.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }) }
				forbid(method)
				lead(one)
				found(true)
				forbid("")
				found(false)
				if !one.Valid() {
					t.Error("allowed, and it does not lead")
				}
				if method == http.MethodPut { // the leader cannot renew
					forbid(method)
					found(true)
					if one.Valid() {
						t.Error("it leads without renewals")
					}
					a.set("one", "refuse")
					forbid("")
					lead(two)
					found(true) // no answer says nothing about permissions
					a.set("one", "")
					found(false)
				}
				if n := strings.Count(log.String(), "level=WARN"); n < 1 || n > 2 {
					t.Errorf("%d warnings:\n%s", n, log)
				}
				stop()
				wg.Wait()
			})
		})
	}
}

// TestRefused: whatever reason the API server has to refuse a Lease is a finding with the remedy, until it is allowed.
// An outage is none.
func TestRefused(t *testing.T) {
	resource, role, other := schema.GroupResource{Resource: "leases"}, "add a rule", "correct what the error names"
	terminating := apierrors.NewForbidden(resource, "x", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for fix, errs := range map[string][]error{
		role: {apierrors.NewForbidden(resource, "x", errors.New("no role"))},
		other: {
			apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "istio-system"), terminating,
			apierrors.NewForbidden(resource, "x", errors.New("exceeded quota: leases")),
			apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "x", nil), apierrors.NewBadRequest("denied"), apierrors.NewUnauthorized("who"),
		},
		"": {
			apierrors.NewTooManyRequests("later", 1), apierrors.NewInternalError(errors.New("broken")), apierrors.NewServiceUnavailable("outage"),
		},
	} {
		for _, err := range errs {
			synctest.Test(t, func(t *testing.T) {
				s := &apiserver.Server{Intercept: func(r *http.Request) error {
					if r.Method == http.MethodPost {
						return err
					}
					return nil
				}}
				l, e := New(Options{Client: s.Config(), Namespace: "istio-system", Name: "x", Identity: "one"})
				must.Succeed(t, e)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { l.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) })
				time.Sleep(time.Minute)
				list := l.Findings()
				if (len(list) > 0) != (fix != "") || !strings.Contains(fmt.Sprint(list), fix) {
					t.Errorf("%v: %v, want %q", err, list, fix)
				}
				s.Set(func() { s.Intercept = nil })
				time.Sleep(time.Minute)
				if list := l.Findings(); len(list) > 0 || !l.Valid() {
					t.Errorf("%v: then %v", err, list)
				}
				stop()
				running.Wait()
			})
		}
	}
}

// TestEdited: a Lease whose holder is gone is taken within a minute, whatever duration somebody has written.
func TestEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.lease = &coordinationv1.Lease{}
		a.lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(math.MaxInt32)), LeaseTransitions: new(int32(math.MaxInt32)),
		}
		a.lease.TypeMeta, a.lease.ResourceVersion = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}, "0"
		a.lease.Name = "istio-leader-canary"
		l := a.instance(t, "one")
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) })
		time.Sleep(maxDuration - time.Second)
		if l.Valid() {
			t.Error("taken too early")
		}
		time.Sleep(5 * time.Second)
		if !l.Valid() || *a.lease.Spec.LeaseTransitions < 0 {
			t.Errorf("not taken: %v", a.lease.Spec)
		}
		stop()
		running.Wait()
	})
}

func TestAnInstanceThatIsCutOffStopsBeforeAnotherBegins(t *testing.T) {
	for _, how := range []string{"hang", "refuse"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI()
				one, two := a.instance(t, "one"), a.instance(t, "two")
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var lost, began time.Time
				wg.Go(func() { one.Run(ctx, func(ctx context.Context) { <-ctx.Done(); lost = time.Now() }) })
				time.Sleep(time.Second)
				wg.Go(func() { two.Run(ctx, func(ctx context.Context) { began = time.Now(); <-ctx.Done() }) })
				time.Sleep(time.Minute)
				cut := time.Now()
				a.set("one", how)
				time.Sleep(8 * time.Second)
				synctest.Wait()
				if one.Valid() || lost.IsZero() {
					t.Errorf("8 s without a renewal and still leading: valid %v, lost %v", one.Valid(), lost)
				}
				time.Sleep(12 * time.Second)
				synctest.Wait()
				if began.IsZero() || began.Sub(cut) > 20*time.Second || !began.After(lost) {
					t.Errorf("lost after %v, taken over after %v", lost.Sub(cut), began.Sub(cut))
				}
				a.set("one", "")
				time.Sleep(time.Minute)
				if a.holder() != "two" {
					t.Errorf("%s leads in the end", a.holder())
				}
				stop()
				wg.Wait()
			})
		})
	}
}

func TestAFunctionThatEndsGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		one := a.instance(t, "one")
		ctx, stop := context.WithCancel(t.Context())
		calls, ended := 0, make(chan bool)
		go func() {
			one.Run(ctx, func(context.Context) {
				if calls++; calls == 1 {
					panic("of the function")
				}
			})
			close(ended)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if one.Valid() || a.holder() != "" || calls < 2 || calls > 45 {
			t.Errorf("valid %v, held by %q after %d calls", one.Valid(), a.holder(), calls)
		}
		stop()
		<-ended
	})
}

func TestGuardStopsWritesOfTheDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		one := a.instance(t, "one")
		sent := 0
		c := &http.Client{Transport: one.Guard(roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))}
		try := func(method string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://api/x", nil)
			must.Succeed(t, err)
			resp, err := c.Do(r)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		if err := try(http.MethodGet); err != nil || sent != 1 {
			t.Errorf("a read needs no lease: %v", err)
		}
		if err := try(http.MethodDelete); !errors.Is(err, ErrNotLeader) || sent != 1 {
			t.Errorf("a write without a lease: %v", err)
		}
		one.setRenewed(time.Now())
		if err := try(http.MethodDelete); err != nil || sent != 2 {
			t.Errorf("a write with the lease: %v", err)
		}
		// A process that was stopped for as long sees it only on the clock.
		time.Sleep(8 * time.Second)
		if err := try(http.MethodPut); !errors.Is(err, ErrNotLeader) || sent != 2 {
			t.Errorf("a write after the deadline: %v", err)
		}
		one.setRenewed(time.Now().Add(-time.Minute).Round(0)) // the machine slept, which only the wall clock shows
		if one.Valid() {
			t.Error("valid after the machine slept")
		}
	})
}

// TestNoWriteWithoutTheLease lets three instances write whenever they may, while their connections to the server fail
// and recover.
func TestNoWriteWithoutTheLease(t *testing.T) {
	seed, _ := histories.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := newAPI()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		names := []string{"one", "two", "three"}
		for _, name := range names {
			l := a.instance(t, name)
			wg.Go(func() { l.Run(ctx, func(ctx context.Context) { a.work(ctx, l, name) }) })
		}
		for range 120 {
			time.Sleep(time.Duration(rng.IntN(15000)) * time.Millisecond)
			name := names[rng.IntN(3)]
			if h := a.holder(); h != "" && rng.IntN(2) == 0 {
				name = h
			}
			a.set(name, []string{"", "", "hang", "refuse"}[rng.IntN(4)])
		}
		stop()
		wg.Wait()
		if len(a.strayed) > 0 {
			t.Errorf("%d writes without the lease, the first by %s", len(a.strayed), a.strayed[0])
		}
		if len(a.holders) < 3 || a.writes["one"]+a.writes["two"]+a.writes["three"] < 1000 {
			t.Errorf("too quiet to show anything: holders %q, writes %v", a.holders, a.writes)
		}
	})
}

func TestNew(t *testing.T) {
	for _, o := range []Options{{Name: "n", Namespace: "ns"}, {Name: "n", Identity: "i"}, {Namespace: "ns", Identity: "i"}} {
		o.Client = &rest.Config{Host: "http://api"}
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	for revision, want := range map[string]string{"": "n", "default": "n", "1-31": "n-1-31"} {
		l, err := New(Options{Client: &rest.Config{Host: "http://api"}, Name: "n", Namespace: "ns", Identity: "i", Revision: revision})
		if err != nil || l.name != want {
			t.Errorf("revision %q: %v %v", revision, l, err)
		}
	}
}
