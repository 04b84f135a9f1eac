package autoregistration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

func TestEntryIsMadeFromGroupAndProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "istiod-a")
		a.connect(stream("1", func(c *xds.Client) { c.Proxy.ReadinessProbe = true }))
		got := w.Object(objectKey(vm()))
		labels := map[string]string{"app": "nodeapp", "extra": "x", "version": "v1", "shared": "group", "tier": "t"}
		want := &kinds.Object{
			Key: objectKey(vm()), UID: "1", Created: time.Now(), Labels: labels,
			Annotations: map[string]string{
				annotationGroup: "reviews", annotationController: "istiod-a", annotationConnected: stamp(time.Now()), annotationHealth: "true",
				"note": "hello",
			},
			Spec: &networkingv1.WorkloadEntry{
				Address: "10.9.0.1", Ports: map[string]uint32{"http": 8080}, ServiceAccount: "reviews-sa", Weight: 3, Network: "net-1",
				Locality: "r/z", Labels: labels,
			},
		}
		if d := cmp.Diff(want, got, protocmp.Transform(), cmp.Comparer(func(a, b *kinds.Kind) bool { return a == b })); d != "" {
			t.Errorf("want -, got +:\n%s", d)
		}
		a.metrics("success=1")
		// The template provides the rest.
		a.connect(stream("2", func(c *xds.Client) { c.Proxy.Network, c.Proxy.Locality = "", [3]string{} }))
		spec := w.Object(kinds.Key{Kind: kinds.WorkloadEntry, Namespace: "vm", Name: "reviews-10.9.0.1"}).Spec.(*networkingv1.WorkloadEntry)
		if spec.GetNetwork() != "template-net" || spec.GetLocality() != "r1/z1/s1" {
			t.Errorf("network %q, locality %q", spec.GetNetwork(), spec.GetLocality())
		}
		a.stop()
	})
}

func TestEntryNames(t *testing.T) {
	long := strings.Repeat("g", 230)
	for _, x := range []struct{ group, ip, network, want string }{
		{"g", "10.0.0.1", "", "g-10.0.0.1"},
		{"g", "10.0.0.1", "net", "g-10.0.0.1-net"},
		{"g", "fd00::5", "", "g-fd00--5"},
		{"g", "fd00::", "", "g-fd00"},
		{"g", "fd00::", "n.-x", "g-fd00---n.x-5ed737fc0c64a8af"},
		{"g", "10.0.0.1", "Net_X/y.", "g-10.0.0.1-net-x-y.bb6d2a5ee088f093"},
		{long, "10.0.0.1", "network-1", ""},
		{long, "10.0.0.1", "network-2", ""},
	} {
		p := &node.Proxy{RegisterGroup: x.group, IPs: []string{x.ip}, Network: x.network, Namespace: "vm"}
		got := keyOf(p).Name
		if x.want != "" && got != x.want || len(got) > maxName ||
			checkProxy(&node.Proxy{RegisterGroup: got, Namespace: "vm", IPs: p.IPs}) != nil {
			t.Errorf("%s %s %s: %q of %d bytes, want %q", x.group, x.ip, x.network, got, len(got), x.want)
		}
	}
	for _, x := range []struct{ group, one, two string }{{long, "network-1", "network-2"}, {"g", "n_1", "n-1"}, {"g", "n_1", "n/1"},
		{"g", "N1", "n1"}, {"g", "n.", "n"}, {long, "n_1", "n/1"}} {
		key := func(network string) string {
			return keyOf(&node.Proxy{RegisterGroup: x.group, IPs: []string{"10.0.0.1"}, Network: network}).Name
		}
		if key(x.one) == key(x.two) {
			t.Errorf("proxies of the networks %s and %s share the name %s", x.one, x.two, key(x.one))
		}
	}
}

func TestEntryIsDeletedAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a")
		a.connect(stream("1"))
		w.want(t, "a connected")
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		a.Disconnected(stream("1"))
		w.want(t, "a disconnected")
		time.Sleep(9 * time.Second)
		w.want(t, "a disconnected")
		a.connect(stream("2")) // it reconnected
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		a.connect(stream("3")) // two streams of one proxy
		a.Disconnected(stream("2"))
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		a.Disconnected(stream("3"))
		time.Sleep(10*time.Second - time.Millisecond)
		w.want(t, "a disconnected")
		time.Sleep(time.Millisecond)
		w.want(t, "none")
		a.metrics("deletes=1 success=1 unregister=2 updates=2")
		if a.known() != 0 {
			t.Errorf("%d streams and entries are still known", a.known())
		}
		a.stop()
	})
}

func TestProxyMovesBetweenReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a, b := w.start(t, "a"), w.start(t, "b")
		a.connect(stream("1"))
		a.Disconnected(stream("1"))
		time.Sleep(5 * time.Second)
		b.connect(stream("1"))
		time.Sleep(time.Hour)
		w.want(t, "b connected")
		// The new stream comes before the old one ends.
		a.connect(stream("2"))
		b.Disconnected(stream("1"))
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		// The newer of two streams ends: the other one is still there.
		b.connect(stream("2"))
		w.want(t, "b connected")
		b.Disconnected(stream("2"))
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		a.Disconnected(stream("2"))
		time.Sleep(10 * time.Second)
		w.want(t, "none")
		a.stop()
		b.stop()
	})
}

func TestHealthIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a")
		c := stream("1")
		a.connect(c)
		a.Health(c, true, "ignored")
		w.want(t, "a connected healthy=true")
		began := time.Now()
		time.Sleep(time.Minute)
		a.Health(c, false, strings.Repeat("é", 3000))
		w.want(t, "a connected healthy=false")
		e, err := w.Memory.Get(t.Context(), vm())
		if err != nil || len(e.Health.Message) > maxMessage || !strings.HasPrefix(e.Health.Message, "éé") ||
			strings.ToValidUTF8(e.Health.Message, "?") != e.Health.Message {
			t.Errorf("message %q, %v", e.Health.Message, err)
		}
		turned := time.Now()
		time.Sleep(time.Minute)
		a.Health(c, false, "no database")
		synctest.Wait()
		e, _ = w.Memory.Get(t.Context(), vm())
		if d := cmp.Diff(&Condition{Healthy: false, Message: "no database", Probed: time.Now(), Changed: turned}, e.Health); d != "" {
			t.Error(d)
		}
		if !turned.After(began) {
			t.Error("no time has passed")
		}
		// A report without news is not written, and an application that flaps is written once a second.
		calls := w.count(&w.calls)
		a.Health(c, false, "no database")
		synctest.Wait()
		if w.count(&w.calls) != calls {
			t.Errorf("%d calls for nothing new", w.count(&w.calls)-calls)
		}
		batches := w.count(&w.batches)
		for i := range 100 {
			a.Health(c, i%2 == 0, fmt.Sprint(i))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := w.count(&w.batches) - batches; n < 2 || n > 4 {
			t.Errorf("%d writes in 3 s", n)
		}
		e, _ = w.Memory.Get(t.Context(), vm())
		if e.Health.Message != "99" {
			t.Errorf("the last written is %+v", e.Health)
		}
		// The report of a proxy that reconnects after its entry was deleted is written into the new one.
		a.Disconnected(c)
		time.Sleep(time.Minute)
		w.want(t, "none")
		a.connect(c)
		w.want(t, "a connected")
		a.Health(c, true, "")
		w.want(t, "a connected healthy=true")
		a.Health(stream("unknown"), false, "") // a stream that registered nothing
		w.want(t, "a connected healthy=true")
		a.stop()

		b := w.start(t, "b", func(o *Options) { o.NoHealth = true })
		b.connect(stream("2"))
		b.Health(stream("2"), false, "x")
		w.want(t, "b connected healthy=true")
		b.stop()
	})
}

func TestWhoMayNotRegister(t *testing.T) {
	for _, x := range []struct {
		name string
		edit func(*xds.Client)
		code codes.Code
		text string
	}{
		{"no group", func(c *xds.Client) { c.Proxy.RegisterGroup = "none" }, codes.FailedPrecondition, "no WorkloadGroup vm/none"},
		{"no identity", func(c *xds.Client) { c.Peer = unproved(c.Address) }, codes.PermissionDenied, "secure port"},
		{"another namespace", func(c *xds.Client) { c.Peer = proved("other", "reviews-sa") }, codes.PermissionDenied, "may not register"},
		{"another account", func(c *xds.Client) { c.Peer = proved("vm", "other") }, codes.PermissionDenied, "reviews-sa"},
		{"no address", func(c *xds.Client) { c.Proxy.IPs = nil }, codes.InvalidArgument, "no address"},
		{"group's name", func(c *xds.Client) { c.Proxy.RegisterGroup = "a/b" }, codes.InvalidArgument, "AUTO_REGISTER_GROUP"},
		{"namespace's name", func(c *xds.Client) { c.Proxy.Namespace = "" }, codes.InvalidArgument, "NAMESPACE"},
		{"label's key", func(c *xds.Client) { c.Proxy.Labels["a b"] = "c" }, codes.InvalidArgument, `"a b"`},
		{"label's value", func(c *xds.Client) { c.Proxy.Labels["a"] = strings.Repeat("c", 64) }, codes.InvalidArgument, `"a"`},
		{"labels", func(c *xds.Client) {
			for i := range 100 {
				c.Proxy.Labels[fmt.Sprint("l", i)] = ""
			}
		}, codes.InvalidArgument, "102 labels"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(reviews())
				a := w.start(t, "a")
				err := a.Connected(t.Context(), stream("1", x.edit))
				if status.Code(err) != x.code || !strings.Contains(err.Error(), x.text) {
					t.Errorf("refused with %v", err)
				}
				a.metrics("errors=1")
				if w.count(&w.calls) != 0 || a.known() != 0 {
					t.Errorf("%d calls, %d entries", w.count(&w.calls), a.known())
				}
				a.stop()
			})
		})
	}
}

func TestWhoNeedsNoIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a", func(o *Options) { o.Authorizer = authorize.New(authorize.Options{RegisterAnyone: true}) })
		a.connect(stream("1", func(c *xds.Client) { c.Peer = unproved(c.Address) }))
		b := w.start(t, "b")
		b.connect(stream("1", func(c *xds.Client) { c.Peer = unproved("[::ffff:127.0.0.1]:80") }))
		// it does not register
		b.connect(stream("2", func(c *xds.Client) { c.Peer, c.Proxy.RegisterGroup = unproved(c.Address), "" }))
		a.stop()
		b.stop()
	})
}

func TestAnEntryWrittenByHandIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		must.Succeed(t, w.Memory.Create(t.Context(), &Entry{NamespacedName: vm(), Spec: &networkingv1.WorkloadEntry{Address: "1.2.3.4"}}))
		a := w.start(t, "a")
		if err := a.Connected(t.Context(), stream("1")); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("refused with %v", err)
		}
		time.Sleep(time.Hour)
		if e, err := w.Memory.Get(t.Context(), vm()); err != nil || e.Version != "1" {
			t.Errorf("the entry is %v, %v", e, err)
		}
		if a.known() != 0 {
			t.Error("it is still known")
		}
		a.stop()
	})
}

func TestManyEntriesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a", func(o *Options) { o.Entries, o.Authorizer = 1, authorize.New(authorize.Options{RegisterAnyone: true}) })
		a.connect(stream("1"))
		other := stream("2", func(c *xds.Client) { c.Proxy.IPs, c.Peer = []string{"10.9.0.9"}, unproved("10.9.0.9:80") })
		if err := a.Connected(t.Context(), other); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("refused with %v", err)
		}
		a.connect(stream("3")) // the same workload
		a.stop()
	})
}

// TestEntriesOfOneIdentity checks that one identity, or one address of proxies without an identity, may have a tenth
// of the entries of an instance, that others can register meanwhile, and that there is room again when an entry is
// deleted.
func TestEntriesOfOneIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a", func(o *Options) { o.Entries, o.Authorizer = 20, authorize.New(authorize.Options{RegisterAnyone: true}) })
		of := func(id, ip string, peer func(*xds.Client)) xds.Client {
			return stream(id, func(c *xds.Client) {
				c.Proxy.IPs = []string{ip}
				peer(c)
			})
		}
		for i, peer := range []func(*xds.Client){func(*xds.Client) {}, func(c *xds.Client) { c.Peer = unproved("10.9.0.9:80") }} {
			at := func(n int) (id, ip string) { return fmt.Sprintf("%d%d", i, n), fmt.Sprintf("10.9.%d.%d", i, n) }
			for n := range 2 {
				id, ip := at(n)
				a.connect(of(id, ip, peer))
			}
			id, ip := at(2)
			if err := a.Connected(t.Context(), of(id, ip, peer)); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a third entry: %v", err)
			}
		}
		id, ip := "00", "10.9.0.0"
		a.Disconnected(of(id, ip, func(*xds.Client) {}))
		time.Sleep(time.Minute)
		a.connect(of("02", "10.9.0.2", func(*xds.Client) {}))
		a.stop()
	})
}

// TestEntriesOfOneTenant checks that peers without an identity leave the last tenth of the entries of an instance to
// others, and that there is room again when entries are deleted.
func TestEntriesOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a", func(o *Options) { o.Entries, o.Authorizer = 20, authorize.New(authorize.Options{RegisterAnyone: true}) })
		of := func(n int) xds.Client {
			return stream(fmt.Sprint(n), func(c *xds.Client) {
				c.Proxy.IPs = []string{fmt.Sprintf("10.9.0.%d", n)}
				c.Peer = unproved(fmt.Sprintf("10.8.0.%d:80", n/2))
			})
		}
		for n := range 18 {
			a.connect(of(n))
		}
		if err := a.Connected(t.Context(), of(18)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("an entry of the last tenth: %v", err)
		}
		a.connect(stream("other"))
		a.Disconnected(of(0))
		a.Disconnected(of(1))
		time.Sleep(time.Minute)
		a.connect(of(18))
		a.stop()
	})
}

func TestStoreFailuresAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a")
		outage := errors.New("connection refused")
		w.failing(func(string) error { return outage })
		began := time.Now()
		if err := a.Connected(t.Context(), stream("1")); status.Code(err) != codes.Unavailable || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		// The outage ends before the proxy gives up.
		go func() {
			time.Sleep(2 * time.Second)
			w.failing(nil)
		}()
		a.connect(stream("2"))
		w.want(t, "a connected")
		// A proxy with a known entry is admitted during the outage, and its changes are written afterwards.
		a.Disconnected(stream("2"))
		w.want(t, "a disconnected")
		w.failing(func(string) error { return outage })
		a.connect(stream("3"))
		a.Health(stream("3"), false, "sick")
		w.want(t, "a disconnected")
		time.Sleep(time.Minute)
		w.failing(nil)
		time.Sleep(time.Minute)
		w.want(t, "a connected healthy=false")
		// The entry is read after a conflict, which is not an error.
		n := 0
		w.failing(func(what string) error {
			if n++; what != "get" && n < 10 {
				return ErrConflict
			}
			return nil
		})
		errs := a.failures()
		a.Disconnected(stream("3"))
		time.Sleep(10 * time.Second)
		w.failing(nil)
		time.Sleep(20 * time.Second)
		w.want(t, "none")
		if got := a.failures(); got != errs {
			t.Errorf("%v conflicts count as errors", got-errs)
		}
		// A refusal is reported at once and not retried.
		w.failing(func(what string) error {
			if what == "create" {
				return fmt.Errorf("%w: field is wrong", ErrRefused)
			}
			return nil
		})
		began = time.Now()
		if err := a.Connected(t.Context(), stream("4")); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "field is wrong") || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		calls := w.count(&w.calls)
		time.Sleep(time.Hour)
		if w.count(&w.calls) > calls+2 {
			t.Errorf("%d more calls", w.count(&w.calls)-calls)
		}
		// A panic ends only one step.
		w.failing(func(string) error { w.fail = nil; panic("of the store") })
		a.connect(stream("5"))
		a.stop()
	})
}

func (r *replica) failures() float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	must.Succeed(r.t, err)
	for _, f := range families {
		if f.GetName() == "auto_registration_errors_total" {
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	return 0
}

func TestDeletedEntryIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a")
		a.connect(stream("1"))
		a.Health(stream("1"), true, "")
		synctest.Wait()
		e, _ := w.Memory.Get(t.Context(), vm())
		must.Succeed(t, w.Memory.Delete(t.Context(), e))
		time.Sleep(10 * time.Second)
		w.want(t, "a connected healthy=true")
		// This holds while its proxy may register: the group may have another service account by now.
		other := reviews()
		other.Spec.(*networkingv1.WorkloadGroup).Template.ServiceAccount = "other-sa"
		w.take([]kinds.Change{{Key: groupKey, Object: other}})
		e, _ = w.Memory.Get(t.Context(), vm())
		must.Succeed(t, w.Memory.Delete(t.Context(), e))
		time.Sleep(time.Hour)
		w.want(t, "none")
		w.take([]kinds.Change{{Key: groupKey, Object: reviews()}})
		time.Sleep(time.Hour)
		w.want(t, "a connected healthy=true")
		// If its group is deleted, so is the entry, even if its proxy stays.
		w.take([]kinds.Change{{Key: groupKey}})
		e, _ = w.Memory.Get(t.Context(), vm())
		must.Succeed(t, w.Memory.Delete(t.Context(), e))
		time.Sleep(time.Hour)
		w.want(t, "none")
		a.Disconnected(stream("1"))
		time.Sleep(time.Minute)
		if a.known() != 0 {
			t.Error("it is still known")
		}
		a.stop()
	})
}

// A stream that ends during the write of its entry, just before a stop, is recorded too.
func TestStopWritesWhatChangedDuringAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		writing, goOn := make(chan struct{}), make(chan struct{})
		w.failing(func(what string) error {
			if what == "create" {
				w.mu.Unlock()
				close(writing)
				<-goOn
				w.mu.Lock()
			}
			return nil
		})
		a := w.start(t, "a")
		connected := make(chan error, 1)
		go func() { connected <- a.Connected(t.Context(), stream("1")) }()
		<-writing
		a.Disconnected(stream("1"))
		stopped := make(chan struct{})
		go func() {
			a.stop()
			close(stopped)
		}()
		synctest.Wait() // all that can happen before the write ends has happened
		close(goOn)
		if err := <-connected; err != nil {
			t.Error(err)
		}
		<-stopped
		w.want(t, "a disconnected")
	})
}

func TestRestartKeepsEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(reviews())
		a := w.start(t, "a")
		a.connect(stream("1"))
		a.Disconnected(stream("1")) // as a graceful stop does with every stream
		a.stop()
		w.want(t, "a disconnected")
		time.Sleep(5 * time.Second)
		again := w.start(t, "a")
		again.connect(stream("1"))
		time.Sleep(time.Hour)
		w.want(t, "a connected")
		again.metrics("updates=1")
		again.stop()
		early := New(Options{Store: w, Instance: "c", World: w})
		connected := make(chan error)
		go func() { connected <- early.Connected(t.Context(), stream("1")) }() // before Run
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- early.Run(ctx) }()
		if err := <-connected; err != nil {
			t.Error(err)
		}
		w.want(t, "c connected")
		cancel()
		<-ended
	})
}
