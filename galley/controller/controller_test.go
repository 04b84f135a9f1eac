package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// configuration returns a webhook configuration as an API server has it.
func configuration(resource schema.GroupVersionResource, name string, webhooks ...any) *unstructured.Unstructured {
	kind := "ValidatingWebhookConfiguration"
	if resource == mutating {
		kind = "MutatingWebhookConfiguration"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "webhooks": webhooks,
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
		resource schema.GroupVersionResource
		webhooks []any
		works    bool
		want     string
	}{
		"as it should be":   {validating, []any{webhook("a", encoded, "Fail", nil)}, true, ""},
		"fails by default":  {validating, []any{webhook("a", encoded, "", nil)}, true, ""},
		"no bundle":         {validating, []any{webhook("a", "", "Fail", nil)}, false, version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"a"}]}`},
		"another bundle":    {validating, []any{webhook("a", "b3RoZXI=", "Ignore", nil)}, false, version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"a"}]}`},
		"not known to work": {validating, []any{webhook("a", encoded, "Ignore", nil)}, false, ""},
		"works":             {validating, []any{webhook("a", encoded, "Ignore", nil)}, true, version + `{"failurePolicy":"Fail","name":"a"}]}`},
		"one of two":        {validating, []any{webhook("b", encoded, "Fail", nil), webhook("a", encoded, "Ignore", nil)}, true, version + `{"failurePolicy":"Fail","name":"a"}]}`},
		"injects":           {mutating, []any{webhook("x."+injectorSuffix, "", "Fail", nil), webhook("other", "", "Fail", nil)}, false, version + `{"clientConfig":{"caBundle":"cm9vdHM="},"name":"x.sidecar-injector.istio.io"}]}`},
	} {
		parsed, err := parse(c.resource, configuration(c.resource, "o", c.webhooks...))
		must.Succeed(t, err)
		if got := string(parsed.patch([]byte("roots"), map[string]bool{"a": c.works})); got != c.want {
			t.Errorf("%s: %s: want %s", what, got, c.want)
		}
	}
	if _, err := parse(validating, configuration(validating, "o", "x")); err == nil {
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
		"impossible":  {map[string]any{"matchLabels": map[string]any{"k": "v"}, "matchExpressions": []any{map[string]any{"key": "k", "operator": "DoesNotExist"}}}, "k=v false"},
	} {
		parsed, err := parse(validating, configuration(validating, "o", webhook("a", "", "", c.selector)))
		must.Succeed(t, err)
		set, ok := parsed.webhooks[0].labelled()
		if got := fmt.Sprint(set.String(), " ", ok); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// server stands for an API server with one configuration.
type server struct {
	*fake.FakeDynamicClient
	mu      sync.Mutex
	writes  []time.Time
	probes  int
	answer  error // to the dry run
	refused error // what writes get
	undo    bool  // each write is undone at once
}

func newServer(objects ...runtime.Object) *server {
	s := &server{FakeDynamicClient: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		validating: "ValidatingWebhookConfigurationList", mutating: "MutatingWebhookConfigurationList",
	}, objects...)}
	s.PrependReactor("create", "gateways", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probes++
		return true, a.(clienttesting.CreateAction).GetObject(), s.answer
	})
	s.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writes = append(s.writes, time.Now())
		if s.refused != nil {
			return true, nil, s.refused
		}
		had, err := s.Tracker().Get(a.GetResource(), "", a.(clienttesting.PatchAction).GetName())
		if err != nil {
			return true, nil, err
		}
		u := had.(*unstructured.Unstructured).DeepCopy()
		if s.undo {
			u.SetResourceVersion(fmt.Sprint(len(s.writes)))
			return true, u, s.Tracker().Update(a.GetResource(), u, "")
		}
		var patch struct{ Webhooks []map[string]any }
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		list := u.Object["webhooks"].([]any)
		for _, p := range patch.Webhooks {
			for _, w := range list {
				if w := w.(map[string]any); w["name"] == p["name"] {
					if c, ok := p["clientConfig"].(map[string]any); ok {
						w["clientConfig"].(map[string]any)["caBundle"] = c["caBundle"]
					}
					if policy, ok := p["failurePolicy"]; ok {
						w["failurePolicy"] = policy
					}
				}
			}
		}
		return true, u, s.Tracker().Update(a.GetResource(), u, "")
	})
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
	o, err := s.Tracker().Get(validating, "", "v")
	must.Succeed(t, err)
	w := o.(*unstructured.Unstructured).Object["webhooks"].([]any)[0].(map[string]any)
	bundle, _ = w["clientConfig"].(map[string]any)["caBundle"].(string)
	policy, _ = w["failurePolicy"].(string)
	return bundle, policy
}

// denied is what an API server says of an object that the webhook has refused.
var denied = apierrors.NewBadRequest(fmt.Sprintf(refused, "a") + ": gateway")

// running runs a Controller beside a server until the test ends.
func running(t *testing.T, s *server, lead func() bool) *Controller {
	t.Helper()
	c := New(Options{
		Client: s, Namespace: "istio-system", Validation: true, Injection: true, Lead: lead, Bundle: func() []byte { return []byte("roots") },
		Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
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
		s := newServer(configuration(validating, "v", webhook("a", "", "Ignore", nil)))
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
		s := newServer(configuration(validating, "v", webhook("a", "b3RoZXI=", "Fail", nil)))
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
		s := newServer(configuration(validating, "v", webhook("a", "", "Fail", nil)))
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
		s := newServer(configuration(validating, "v", webhook("a", "", "Fail", nil)))
		s.refused = apierrors.NewForbidden(validating.GroupResource(), "v", nil)
		c := running(t, s, always)
		pass(20 * time.Second)
		if list := c.Findings(); len(list) != 1 || !strings.Contains(list[0].Message, "forbidden") || list[0].Object != "ValidatingWebhookConfiguration v" {
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
		s := newServer(configuration(validating, "v", webhook("a", "", "Fail", nil)))
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
			c.Wake()
			pass(5 * time.Second)
		}
		s.set(func() { s.refused = apierrors.NewForbidden(validating.GroupResource(), "v", nil) })
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
