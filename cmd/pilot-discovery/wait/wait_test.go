package wait

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// fake are servers of tests.
type fake struct {
	answer  func(*target) (progress.Answer, error)
	version func() (crd.Version, error)
}

func (f fake) ask(_ context.Context, t *target) (progress.Answer, error) { return f.answer(t) }

func (f fake) current(context.Context, kinds.Key) (crd.Version, error) { return f.version() }

// reviews is the name of the object of the tests.
const reviews = "VirtualService.networking.istio.io/reviews.shop"

// exitOf returns the exit code for an error.
func exitOf(err error) int {
	var exit cli.Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	}
	return 1
}

// Each state of an object leads to its exit code, at once or at the end of the time.
func TestStates(t *testing.T) {
	const now, end = 0, time.Minute
	for name, x := range map[string]struct {
		states []progress.State // one for each question; the last one stays
		exit   int
		after  time.Duration
		says   string
	}{
		"no server":                 {[]progress.State{""}, 1, now, ""},
		"an unknown state":          {[]progress.State{"wonderful"}, 1, now, ""},
		"an unknown state later":    {[]progress.State{progress.Behind, "wonderful", progress.InForce}, 0, 112 * time.Millisecond, "in force"},
		"an unknown state for good": {[]progress.State{progress.Behind, "wonderful"}, 1, end, `says "wonderful"`},
		"a server starts again":     {[]progress.State{progress.Behind, "", progress.InForce}, 0, 112 * time.Millisecond, "in force"},
		"current, superseded":       {[]progress.State{progress.Superseded, progress.InForce}, 0, firstInterval, "in force"},
		"in force":                  {[]progress.State{progress.InForce}, 0, now, "in force"},
		"in force in the end": {[]progress.State{progress.NotSeen, progress.Behind, progress.Unknown, progress.InForce}, 0,
			190 * time.Millisecond, ""},
		"without effect":                     {[]progress.State{progress.WithoutEffect}, 0, now, "because"},
		"superseded":                         {[]progress.State{progress.Behind, progress.Superseded}, cli.Found, firstInterval, "superseded"},
		"content, superseded":                {[]progress.State{progress.Superseded}, cli.Found, 2100 * time.Millisecond, "superseded"},
		"content, superseded, then in force": {[]progress.State{progress.Superseded, progress.InForce}, 0, firstInterval, "in force"},
		"invalid":                            {[]progress.State{progress.Invalid}, cli.Found, now, "invalid"},
		"rejected":                           {[]progress.State{progress.Rejected}, cli.Found, 2100 * time.Millisecond, "rejected"},
		"rejected, then in force": {[]progress.State{progress.Rejected, progress.Rejected, progress.InForce}, 0, 112 * time.Millisecond,
			"in force"},
		"behind for good":           {[]progress.State{progress.Behind}, cli.Found, end, "behind"},
		"not seen for good":         {[]progress.State{progress.NotSeen}, cli.Found, end, "not seen"},
		"a replica does not answer": {[]progress.State{progress.Unknown}, 1, end, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, warnings bytes.Buffer
				w := &waiter{out: &out, warnings: &warnings, output: "table", targets: []*target{{name: reviews}}}
				w.newest = strings.HasPrefix(name, "current")
				if strings.HasPrefix(name, "content") {
					w.targets[0].version = "x"
				}
				asked := 0
				w.servers = fake{answer: func(*target) (progress.Answer, error) {
					a := progress.Answer{State: x.states[min(asked, len(x.states)-1)], Why: "because"}
					asked++
					if a.State == "" {
						return a, errors.New("no server answers")
					}
					return a, nil
				}}
				ctx, cancel := context.WithTimeout(t.Context(), end)
				defer cancel()
				began := time.Now()
				err := w.wait(ctx)
				if got := exitOf(err); got != x.exit {
					t.Errorf("exit code %d (%v), want %d", got, err, x.exit)
				}
				if took := time.Since(began); took < x.after || took > x.after+x.after/4+time.Millisecond {
					t.Errorf("ended after %s, want %s", took, x.after)
				}
				if text := out.String() + warnings.String(); !strings.Contains(text, x.says) {
					t.Errorf("it prints %q, without %q", text, x.says)
				}
			})
		})
	}
}

// The command fails for a deleted object, unless the deletion is awaited or the object is written again. A warning says
// that the server does not know a deleted object.
func TestDeletions(t *testing.T) {
	at := time.Unix(1, 0)
	gone := progress.Answer{
		State: progress.InForce, Deleted: true, Since: &at, Counted: true, Proxies: progress.Proxies{Concerned: 3, InForce: 3},
	}
	with := func(s progress.State, since *time.Time) progress.Answer {
		return progress.Answer{State: s, Deleted: true, Since: since, Why: "because"}
	}
	there := progress.Answer{State: progress.InForce, Generation: 1}
	const now, lasts, end = 0, 2100 * time.Millisecond, time.Minute
	for name, x := range map[string]struct {
		answers []progress.Answer // one for each question; the last one stays
		target  target
		exit    int
		after   time.Duration
		says    string
		warns   string // nothing if empty
	}{
		"gone": {[]progress.Answer{gone}, target{}, cli.Found, lasts, "deleted   3 of 3 proxies; --deleted awaits the deletion",
			""},
		"gone, written again":  {[]progress.Answer{gone, there}, target{}, 0, firstInterval, "   in force", ""},
		"gone, proxies behind": {[]progress.Answer{with(progress.Behind, &at)}, target{}, cli.Found, lasts, "deleted", ""},
		"gone without effect":  {[]progress.Answer{with(progress.WithoutEffect, &at)}, target{}, cli.Found, lasts, "deleted", ""},
		"gone, perhaps":        {[]progress.Answer{with(progress.Unknown, &at)}, target{}, 1, end, "deleted", ""},
		"gone, in a file":      {[]progress.Answer{gone}, target{object: route()}, cli.Found, end, "deleted", ""},
		"awaited":              {[]progress.Answer{gone}, target{deleted: true}, 0, now, "deletion in force   3 of 3 proxies\n", ""},
		"awaited, there":       {[]progress.Answer{with(progress.NotSeen, nil)}, target{deleted: true}, cli.Found, end, "deletion not seen", ""},
		"awaited, later": {[]progress.Answer{with(progress.NotSeen, nil), gone}, target{deleted: true}, 0, firstInterval,
			"deletion in force", ""},
		"awaited, never seen": {[]progress.Answer{with(progress.InForce, nil)}, target{deleted: true}, 0, now, "deletion in force", "misspelt"},
		"awaited, a Secret": {[]progress.Answer{{State: progress.InForce, Deleted: true, Object: progress.Object{Kind: "Secret"}}},
			target{deleted: true}, 0, now, "deletion in force", ""},
		"awaited without proxy": {[]progress.Answer{with(progress.WithoutEffect, &at)}, target{deleted: true}, 0, now,
			"deletion without effect", "no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, warnings bytes.Buffer
				x.target.name = reviews
				w := &waiter{out: &out, warnings: &warnings, output: "table", targets: []*target{&x.target}}
				asked := 0
				w.servers = fake{answer: func(*target) (progress.Answer, error) {
					a := x.answers[min(asked, len(x.answers)-1)]
					asked++
					return a, nil
				}, version: func() (crd.Version, error) { return crd.Version{}, errors.New("it does not have it") }}
				ctx, cancel := context.WithTimeout(t.Context(), end)
				defer cancel()
				began := time.Now()
				err := w.wait(ctx)
				if got := exitOf(err); got != x.exit {
					t.Errorf("exit code %d (%v), want %d", got, err, x.exit)
				}
				if took := time.Since(began); took < x.after || took > x.after+x.after/4+time.Millisecond {
					t.Errorf("ended after %s, want %s", took, x.after)
				}
				if !strings.Contains(out.String(), x.says) || !strings.Contains(warnings.String(), x.warns) || x.warns == "" && warnings.Len() > 0 {
					t.Errorf("it prints %q and warns %q, want %q and %q", &out, &warnings, x.says, x.warns)
				}
			})
		})
	}
}

// Awaiting a generation of an object without generations is an error at once.
func TestNoGenerations(t *testing.T) {
	const end = time.Minute
	at := time.Unix(1, 0)
	for name, x := range map[string]struct {
		newest progress.Answer
		fails  bool
		says   string
	}{
		"a file":         {progress.Answer{State: progress.InForce, Version: "x", Position: "web.yaml:1:1"}, false, "from a file, web.yaml:1:1"},
		"a Service":      {progress.Answer{State: progress.Behind, Version: "x"}, false, "has no generation: name a file"},
		"a Secret":       {progress.Answer{State: progress.InForce, Since: &at}, false, "has no generation: name a file"},
		"an API server":  {progress.Answer{State: progress.InForce, Generation: 3}, false, ""},
		"not seen":       {progress.Answer{State: progress.NotSeen}, false, ""},
		"gone":           {progress.Answer{State: progress.InForce, Deleted: true, Since: &at}, false, ""},
		"no answer then": {progress.Answer{}, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &waiter{out: &bytes.Buffer{}, warnings: &bytes.Buffer{}, output: "table", targets: []*target{{name: reviews, generation: 99}}}
			w.servers = fake{answer: func(about *target) (progress.Answer, error) {
				switch {
				case about.generation == 99:
					return progress.Answer{State: progress.NotSeen}, nil
				case x.fails:
					return progress.Answer{}, errors.New("no server answers")
				}
				return x.newest, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			began := time.Now()
			err := w.wait(ctx)
			if x.says == "" {
				if exitOf(err) != cli.Found || time.Since(began) != end {
					t.Errorf("%s: %v after %s", name, err, time.Since(began))
				}
			} else if exitOf(err) != 1 || time.Since(began) != 0 || !strings.Contains(err.Error(), x.says) ||
				!strings.HasPrefix(err.Error(), "--generation=99: "+reviews+" ") {
				t.Errorf("%s: %v after %s, want %q", name, err, time.Since(began), x.says)
			}
		})
	}
}

// Findings say why an object is not in force. For a version that is not seen and has no finding, a hint says where to
// look.
func TestFindings(t *testing.T) {
	found := []diag.Diagnostic{{Severity: diag.Error, Code: "DuplicateObject", File: "b.yaml", Message: "twice"}}
	for name, x := range map[string]struct {
		answer progress.Answer
		want   string
	}{
		"not seen": {progress.Answer{State: progress.NotSeen}, "   not seen   \n  " + unseen + "\n"},
		"not seen, a finding": {progress.Answer{State: progress.NotSeen, Findings: found},
			"   not seen   \n  b.yaml: error: twice [DuplicateObject]\n"},
		"not seen, for reason": {progress.Answer{State: progress.NotSeen, Why: "because"}, "   not seen   because\n"},
		"invalid": {progress.Answer{State: progress.Invalid, Findings: found},
			"   invalid   \n  b.yaml: error: twice [DuplicateObject]\n"},
		"in force": {progress.Answer{State: progress.InForce, Findings: found}, "   in force   \n"},
	} {
		var out bytes.Buffer
		w := &waiter{output: "table", targets: []*target{{name: reviews, last: x.answer}}}
		if err := w.show(&out); err != nil || out.String() != reviews+x.want {
			t.Errorf("%s: %v, %q, want %q", name, err, out.String(), reviews+x.want)
		}
	}
}

// A Secret without effect is asked about again after the Gateway that makes proxies need it.
func TestNeededMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gateway, secret = "Gateway.networking.istio.io/edge.shop", "Secret/edge.shop"
		var out, warnings bytes.Buffer
		w := &waiter{out: &out, warnings: &warnings, output: "table", targets: []*target{{name: secret}, {name: gateway}}}
		needed := []progress.State{progress.Behind, progress.InForce}
		opened := false
		var mu sync.Mutex
		w.servers = fake{answer: func(about *target) (a progress.Answer, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch a.State = progress.InForce; {
			case about.name == gateway:
				opened = true
			case !opened:
				a.State = progress.WithoutEffect
			default:
				a.State, needed = needed[0], needed[1:]
			}
			return a, nil
		}}
		if err := w.wait(t.Context()); err != nil || len(needed) > 0 || warnings.Len() > 0 {
			t.Errorf("%v, %d questions are left: %s%s", err, len(needed), &out, &warnings)
		}
	})
}

// route returns an object of a file.
func route() *kinds.Object {
	return &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: "shop", Name: "reviews"}, Spec: &networkingv1.VirtualService{}}
}

// An object of a file is awaited in the version of the file, and never in an older one.
func TestVersionOfFile(t *testing.T) {
	o := route()
	secret := &kinds.Object{Key: kinds.Key{Kind: kinds.Secret, Namespace: "shop", Name: "edge"}, Spec: &corev1.Secret{}}
	service := &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "shop", Name: "reviews"}, Spec: &corev1.Service{}}
	for name, x := range map[string]struct {
		object *kinds.Object // o if nil
		first  progress.Answer
		want   target
		asked  int // questions
		fails  bool
	}{
		"an API server": {first: progress.Answer{State: progress.InForce, Generation: 3}, want: target{generation: 4, uid: "u"}, asked: 3},
		"a Service of an API server": {first: progress.Answer{State: progress.InForce, Version: "x"}, want: target{newest: true},
			asked: 3, object: service},
		"a Service in a file": {first: progress.Answer{State: progress.InForce, Version: "x", Position: "a.yaml:1:1"},
			want: target{version: archive.Content(service)}, asked: 3, object: service},
		"files": {first: progress.Answer{State: progress.InForce, Version: "x"},
			want: target{version: archive.Content(o)}, asked: 3},
		"a Secret, whose version is not shown": {object: secret, first: progress.Answer{State: progress.InForce},
			want: target{version: archive.Content(secret)}, asked: 2},
		"an API server that is refused": {first: progress.Answer{State: progress.InForce, Generation: 3}, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked []target
			object := cmp.Or(x.object, o)
			w := &waiter{out: &bytes.Buffer{}, warnings: &bytes.Buffer{}, output: "table"}
			w.targets = []*target{{name: progress.Name(object.Key), object: object}}
			w.servers = fake{answer: func(about *target) (progress.Answer, error) {
				asked = append(asked, *about)
				switch len(asked) {
				case 1:
					return progress.Answer{State: progress.NotSeen}, nil
				case 2:
					return x.first, nil
				}
				return progress.Answer{State: progress.InForce}, nil
			}, version: func() (crd.Version, error) {
				if x.fails {
					return crd.Version{}, errors.New("forbidden")
				}
				return crd.Version{Generation: 4, UID: "u"}, nil
			}}
			err := w.wait(t.Context())
			if x.fails {
				if err == nil || exitOf(err) != 1 {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			last := asked[len(asked)-1]
			if err != nil || len(asked) != x.asked || last.generation != x.want.generation || last.uid != x.want.uid ||
				last.version != x.want.version || last.newest != x.want.newest {
				t.Errorf("%s: %d questions, the last about %+v: %v", name, len(asked), last, err)
			}
		})
	}
}

// A server that does not answer in time leaves the objects unknown, with the reason.
func TestNoAnswer(t *testing.T) {
	for output, want := range map[string]string{
		"table": reviews + "   unknown   the server has not answered\n",
		"json":  `"state": "unknown"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w := &waiter{out: &out, warnings: &bytes.Buffer{}, output: output, targets: []*target{{name: reviews}}}
			w.servers = fake{answer: func(*target) (progress.Answer, error) {
				<-ctx.Done()
				return progress.Answer{}, ctx.Err()
			}}
			if err := w.wait(ctx); exitOf(err) != 1 || !strings.Contains(out.String(), want) {
				t.Errorf("%s: %v, %q, want %q", output, err, &out, want)
			}
		})
	}
}

// With --watch each state is printed once, even if the watch ends meanwhile.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := &waiter{out: &out, warnings: &bytes.Buffer{}, output: "table", watch: true, targets: []*target{{name: reviews}}}
		states := []progress.State{progress.NotSeen, progress.NotSeen, progress.Behind, progress.InForce}
		w.servers = fake{answer: func(*target) (progress.Answer, error) {
			a := progress.Answer{State: states[0], Why: "because"}
			states = states[min(1, len(states)-1):]
			return a, nil
		}}
		err := w.wait(ctx)
		const want = reviews + "   not seen   because\n" + reviews + "   behind   because\n" + reviews + "   in force   because\n"
		if err != nil || out.String() != want {
			t.Errorf("%v, %q, want %q", err, &out, want)
		}
	})
}

// A token file that is empty or has several lines is an error that names the file.
func TestTokenFile(t *testing.T) {
	for _, text := range []string{"", " \n", "a\nb", "a\x01"} {
		f := &flags{tokenFile: filepath.Join(t.TempDir(), "token"), address: "127.0.0.1:1"}
		must.Succeed(t, os.WriteFile(f.tokenFile, []byte(text), 0o600))
		if _, err := f.ask(t.Context(), &target{name: reviews}); err == nil || !strings.Contains(err.Error(), f.tokenFile+" holds no token") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// If the server refuses a question, the command ends at once with the remedy that the server names.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := &kinds.Object{Key: kinds.Key{Kind: kinds.Secret, Namespace: "shop", Name: "edge"}, Spec: &corev1.Secret{}}
		w := &waiter{out: &bytes.Buffer{}, warnings: &bytes.Buffer{}, output: "table"}
		w.targets = []*target{{name: progress.Name(secret.Key), object: secret}}
		w.servers = fake{answer: func(about *target) (progress.Answer, error) {
			if about.version != "" {
				return progress.Answer{}, &cli.StatusError{Code: http.StatusForbidden}
			}
			return progress.Answer{State: progress.InForce}, nil
		}}
		began := time.Now()
		var refused *cli.StatusError
		if err := w.wait(t.Context()); !errors.As(err, &refused) || exitOf(err) != 1 || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The table has numbers of proxies only if they are known.
func TestReason(t *testing.T) {
	all := progress.Proxies{Connected: 20, Concerned: 12, InForce: 12}
	lacking := progress.Proxies{Connected: 20, Concerned: 12, InForce: 11, Behind: 1}
	for want, a := range map[string]progress.Answer{
		"12 of 12 proxies": {State: progress.InForce, Counted: true, Proxies: all},
		"11 of 12 proxies": {State: progress.Behind, Counted: true, Proxies: lacking},
		"all that it concerns of 20 connected proxies; because": {State: progress.InForce, Proxies: all, Why: "because"},
		"1 of 20 connected proxies lack it, or may":             {State: progress.Behind, Proxies: lacking},
		"because": {State: progress.WithoutEffect, Proxies: progress.Proxies{Connected: 20}, Why: "because"},
		"":        {State: progress.NotSeen},
	} {
		if got := (&target{last: a}).reason(); got != want {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
}

// A proxy that was sent several changes at once may reject another one of them, and the line says so.
func TestTogether(t *testing.T) {
	o := progress.Owing{Proxy: "web-1.a", State: "rejected", Type: "rds", Message: "no"}
	if text := describe(o); !strings.HasSuffix(text, ": RDS: no") {
		t.Error(text)
	}
	o.Together = true
	if text := describe(o); !strings.HasSuffix(text, ": RDS: no (it was sent other changes at the same time, and may reject one of them)") {
		t.Error(text)
	}
}
