package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// configuration returns a webhook configuration as an API server has it.
func configuration(kind *kinds.Kind, name string, webhooks ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.Name, "webhooks": webhooks,
		"metadata": map[string]any{"name": name, "resourceVersion": "7", "labels": map[string]any{names.LabelRevision: "default"}},
	}}
}

// webhook returns one webhook of a configuration. Its caBundle is as JSON has it.
func webhook(name, bundle, policy string, selector map[string]any) map[string]any {
	w := map[string]any{"name": name, "clientConfig": map[string]any{"url": "https://127.0.0.1/validate"}}
	if bundle != "" {
		w["clientConfig"].(map[string]any)["caBundle"] = bundle
	}
	if policy != "" {
		w["failurePolicy"] = policy
	}
	if selector != nil {
		w["objectSelector"] = selector
	}
	return w
}

const encoded = "cm9vdHM=" // "roots"

// TestPatch changes what differs, and nothing else.
func TestPatch(t *testing.T) {
	const version = `{"metadata":{"resourceVersion":"7"},"webhooks":[`
	for what, c := range map[string]struct {
		kind     *kinds.Kind
		webhooks []any
		works    bool
		want     string
	}{
		"as it should be":  {Validating, []any{webhook("a", encoded, "Fail", nil)}, true, ""},
		"fails by default": {Validating, []any{webhook("a", encoded, "", nil)}, true, ""},
		"no bundle": {Validating, []any{webhook("a", "", "Fail", nil)}, false,
			version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"a"}]}`},
		"another bundle": {Validating, []any{webhook("a", "b3RoZXI=", "Ignore", nil)},
			false, version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"a"}]}`},
		"not known to work": {Validating, []any{webhook("a", encoded, "Ignore", nil)}, false, ""},
		"works":             {Validating, []any{webhook("a", encoded, "Ignore", nil)}, true, version + `{"failurePolicy":"Fail","name":"a"}]}`},
		"one of two": {Validating, []any{webhook("b", encoded, "Fail", nil), webhook("a", encoded, "Ignore", nil)},
			true, version + `{"failurePolicy":"Fail","name":"a"}]}`},
		"injects": {Mutating, []any{webhook("x."+injectorSuffix, "", "Fail", nil), webhook("other", "", "Fail", nil)},
			false, version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"x.sidecar-injector.istio.io"}]}`},
	} {
		parsed, err := parse(c.kind, configuration(c.kind, "o", c.webhooks...))
		must.Succeed(t, err)
		if got := string(parsed.patch([]byte("roots"), map[string]bool{"a": c.works})); got != c.want {
			t.Errorf("%s: %s: want %s", what, got, c.want)
		}
	}
	if _, err := parse(Validating, configuration(Validating, "o", "x")); err == nil {
		t.Error("a webhook that is text is taken")
	}
}

// TestLabelled finds labels of an object that a webhook is asked about.
func TestLabelled(t *testing.T) {
	expression := func(operator string, values ...any) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "k", "operator": operator, "values": values}}}
	}
	for what, c := range map[string]struct {
		selector map[string]any
		want     string
	}{
		"none":        {nil, " true"},
		"labels":      {map[string]any{"matchLabels": map[string]any{"k": "v"}}, "k=v true"},
		"one of some": {expression("In", "a", "b"), "k=a true"},
		"any":         {expression("Exists"), "k=true true"},
		"not there":   {expression("DoesNotExist"), " true"},
		"none of":     {expression("NotIn", "a"), " true"},
		"impossible": {map[string]any{"matchLabels": map[string]any{"k": "v"},
			"matchExpressions": []any{map[string]any{"key": "k", "operator": "DoesNotExist"}}}, "k=v false"},
	} {
		parsed, err := parse(Validating, configuration(Validating, "o", webhook("a", "", "", c.selector)))
		must.Succeed(t, err)
		set, ok := parsed.webhooks[0].labelled()
		if got := fmt.Sprint(set.String(), " ", ok); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// server is an API server, with what it does to the webhook's configuration.
type server struct {
	*apiserver.Server
	mu      sync.Mutex
	writes  []time.Time
	probes  int
	answer  error // to the dry run
	refused error // what writes get
	undo    bool  // each write is undone at once
}

const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v"

func newServer(v *unstructured.Unstructured) *server {
	s := &server{Server: &apiserver.Server{}}
	s.Put(path, v)
	s.Intercept = func(r *http.Request) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch r.Method {
		case http.MethodPost:
			s.probes++
			if !r.URL.Query().Has("dryRun") {
				return errors.New("not a dry run")
			}
			return s.answer
		case http.MethodPatch:
			s.writes = append(s.writes, time.Now())
			if s.undo {
				time.AfterFunc(time.Millisecond, func() { s.Put(path, v) })
			}
			return s.refused
		}
		return nil
	}
	return s
}

// set changes what the server does.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// state returns what it has of its webhook.
func (s *server) state(t *testing.T) (bundle, policy string) {
	t.Helper()
	w := s.Object(path).Object["webhooks"].([]any)[0].(map[string]any)
	bundle, _ = w["clientConfig"].(map[string]any)["caBundle"].(string)
	policy, _ = w["failurePolicy"].(string)
	return bundle, policy
}

// denied is the API server's message about an object that the webhook has refused.
var denied = apierrors.NewBadRequest(fmt.Sprintf(refused, "a") + ": gateway")

// lease is a Lease that is valid while the function returns true.
type lease func() bool

func (l lease) Valid() bool { return l() }

// roots are Bundles that never change.
type roots string

func (r roots) Roots() []byte           { return []byte(r) }
func (roots) Observed(string, [][]byte) {}

// running runs the Reconcilers of both kinds beside a server until the test ends.
func running(t *testing.T, s *server, lead lease) *controllers.Manager {
	t.Helper()
	logger, metrics := slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry())
	var list []*controllers.Controller
	for _, k := range []*kinds.Kind{Validating, Mutating} {
		list = append(list, controllers.New(k.Name, "WebhooksNotRead", New(Options{
			Kind: k, Namespace: "istio-system", Lease: lead, Bundles: roots("roots"), Logger: logger, Metrics: metrics,
		}), logger))
	}
	m, err := controllers.NewManager(controllers.Options{Client: s.Config(), Logger: logger}, list...)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return m
}

func always() bool { return true }

// pass lets time pass, and waits until all that is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFailsClosedWhenItWorks: a webhook fails closed after an invalid object was really refused, and not before.
func TestFailsClosedWhenItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(configuration(Validating, "v", webhook("a", "", "Ignore", nil)))
		c := running(t, s, always)
		for what, answer := range map[string]error{
			"it is stored":           nil,
			"the webhook is away":    apierrors.NewInternalError(errors.New(`failed calling webhook "a": connection refused`)),
			"another webhook":        apierrors.NewBadRequest(`admission webhook "z" denied the request: configuration is invalid: x`),
			"for another reason":     apierrors.NewBadRequest(`admission webhook "a" denied the request: quota`),
			"there is no such kind":  apierrors.NewNotFound(schema.GroupResource{Resource: "gateways"}, ""),
			"it may not be tried":    apierrors.NewForbidden(schema.GroupResource{Resource: "gateways"}, "", nil),
			"the schema refuses it":  apierrors.NewInvalid(schema.GroupKind{Kind: "Gateway"}, "", nil),
			"the server is too busy": apierrors.NewTooManyRequests("x", 1),
		} {
			s.set(func() { s.answer = answer })
			pass(20 * time.Second)
			if bundle, policy := s.state(t); bundle != encoded || policy != "Ignore" {
				t.Errorf("%s: %q, %s", what, bundle, policy)
			}
			if list := c.Findings(); len(list) != 1 || !strings.Contains(list[0].Message, "webhook a lets invalid objects through") {
				t.Errorf("%s: %v", what, list)
			}
		}
		s.set(func() { s.answer = denied })
		pass(5 * time.Second)
		if bundle, policy := s.state(t); bundle != encoded || policy != "Fail" || len(c.Findings()) != 0 {
			t.Errorf("%q, %s, %v", bundle, policy, c.Findings())
		}
		probes, writes := s.probes, len(s.writes)
		pass(time.Hour)
		if s.probes != probes || len(s.writes) != writes {
			t.Errorf("%d dry runs and %d writes of what is as it should be", s.probes-probes, len(s.writes)-writes)
		}
	})
}

// TestFailsClosedStaysSo: a configuration that says Fail is not opened, whatever the dry run would say.
func TestFailsClosedStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(configuration(Validating, "v", webhook("a", "b3RoZXI=", "Fail", nil)))
		running(t, s, always)
		pass(time.Minute)
		if bundle, policy := s.state(t); bundle != encoded || policy != "Fail" || s.probes > 0 {
			t.Errorf("%q, %s, %d dry runs", bundle, policy, s.probes)
		}
	})
}

// TestNoHotLoop: what somebody undoes at once is written again within five seconds, at most once a second.
func TestNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(configuration(Validating, "v", webhook("a", "", "Fail", nil)))
		s.undo = true
		running(t, s, always)
		pass(time.Minute)
		for i := range s.writes[1:] {
			if pause := s.writes[i+1].Sub(s.writes[i]); pause < time.Second || pause > 5*time.Second {
				t.Errorf("%s between two writes", pause)
			}
		}
		if len(s.writes) < 12 {
			t.Errorf("%d writes in a minute", len(s.writes))
		}
		s.set(func() { s.undo = false })
		pass(5 * time.Second)
		if bundle, _ := s.state(t); bundle != encoded {
			t.Error("it was given up")
		}
	})
}

// TestRefusedWrites are a finding, and tried again.
func TestRefusedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(configuration(Validating, "v", webhook("a", "", "Fail", nil)))
		s.refused = apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, "v", nil)
		c := running(t, s, always)
		pass(20 * time.Second)
		if list := c.Findings(); len(list) != 1 || !strings.Contains(list[0].Message, "forbidden") ||
			list[0].Object != "ValidatingWebhookConfiguration v" {
			t.Errorf("%v", list)
		}
		s.set(func() { s.refused = nil })
		pass(5 * time.Second)
		if bundle, _ := s.state(t); bundle != encoded || len(c.Findings()) != 0 {
			t.Errorf("%q, %v", bundle, c.Findings())
		}
	})
}

// TestOnlyTheLeaderWrites: another replica watches, and writes when it leads. What could not be written is a finding of
// the one that leads.
func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(configuration(Validating, "v", webhook("a", "", "Fail", nil)))
		var mu sync.Mutex
		leads := false
		c := running(t, s, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return leads
		})
		pass(time.Minute)
		if len(s.writes) > 0 || s.probes > 0 {
			t.Errorf("%d writes, %d dry runs", len(s.writes), s.probes)
		}
		lead := func(now bool) {
			mu.Lock()
			leads = now
			mu.Unlock()
			c.NotifyAll()
			pass(5 * time.Second)
		}
		s.set(func() {
			s.refused = apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, "v", nil)
		})
		lead(true)
		if len(c.Findings()) != 1 {
			t.Errorf("it could not write: %v", c.Findings())
		}
		lead(false)
		if len(c.Findings()) != 0 {
			t.Errorf("it does not lead any more: %v", c.Findings())
		}
		s.set(func() { s.refused = nil })
		lead(true)
		if bundle, _ := s.state(t); bundle != encoded {
			t.Errorf("%q", bundle)
		}
	})
}

// TestRemedies: a finding says what mends its fault and no other.
func TestRemedies(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "gateways"}, "", errors.New("no"))
	r := &Reconciler{o: Options{Kind: Validating, Namespace: "mesh"}}
	for _, x := range []struct {
		err        error
		fix, other string
	}{
		{errNotRefused, "selectors", "create Gateways"},
		{errNotSelected, "objectSelector", "port 443"},
		{fmt.Errorf("an invalid object cannot be tried: %w", forbidden), "create Gateways in namespace mesh", "port 443"},
		{errors.New("connection refused"), "port 443", "create Gateways"},
	} {
		err := fmt.Errorf("webhook x: %w", x.err)
		if fix := r.Finding(reconcile.Request{}, err).Fix; !strings.Contains(fix, x.fix) || strings.Contains(fix, x.other) {
			t.Errorf("%v: %s", err, fix)
		}
	}
}
