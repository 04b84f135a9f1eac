package kube

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// configuration returns a ValidatingWebhookConfiguration of a revision.
func (w *admission) configuration(name, revision string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s, labels: {istio.io/rev: %s}}
webhooks:
- name: rev.validation.istio.io
  clientConfig: {url: "https://%s/validate"}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [networking.istio.io, security.istio.io], apiVersions: ["*"], resources: ["*"]}]
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
  objectSelector: {matchExpressions: [{key: istio.io/rev, operator: In, values: [%s]}]}
`, name, revision, w.port, revision)
}

// tag is the MutatingWebhookConfiguration of a revision's tag. One of its webhooks has another owner.
func (w *admission) tag() string {
	const rest = `failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], namespaceSelector: {matchLabels: {injected: "true"}},
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-revision-tag-prod, labels: {istio.io/rev: default, istio.io/tag: prod}}
webhooks:
- {name: rev.namespace.sidecar-injector.istio.io, clientConfig: {url: "https://%s/inject"}, %s}
- {name: other.example.com, clientConfig: {url: "https://%s/inject"}, %s}
`, w.port, rest, w.port, rest)
}

const ours = "validator"

// TestWebhooks: the API server calls the webhook, and refuses objects that it cannot send to it once the webhook works.
// Configurations of the revision are restored after any edit, and no others are touched.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newAdmission(t)
	w.plug("one")
	w.Write(w.configuration(ours, "default") + "---" + w.configuration("validator-canary", "canary") + "---" + w.tag())
	_, canary, err := w.hooks(validating, "validator-canary")
	w.Must(err)
	if err := w.create(gateway("early", bad)); err != nil {
		t.Errorf("nobody answers yet, and the policy is Ignore: %v", err)
	}
	r := w.launch("istiod-0")
	w.kept("at first", ours, 1)

	t.Run("Messages", func(t *testing.T) {
		w := w.in(t)
		err := w.create(gateway("bad", bad))
		const want = `admission webhook "rev.validation.istio.io" denied the request: configuration is invalid: spec.servers[0].hosts[0]: `
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
		w.Must(w.create(gateway("good", good)))
		_, err = w.Dynamic().Resource(istioGateways).Namespace("default").Patch(w.Ctx, "good", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/servers/0/hosts","value":["a b"]}]`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "spec.servers[0].hosts[0]: ") {
			t.Errorf("an edit: %v", err)
		}
		w.Must(w.Dynamic().Resource(istioGateways).Namespace("default").Delete(w.Ctx, "early", metav1.DeleteOptions{}))
		other := gateway("canary", bad)
		other.SetLabels(map[string]string{"istio.io/rev": "canary"})
		w.Must(w.create(other))
		for _, line := range []string{
			`galley_validation_failed{group="networking.istio.io",reason="invalid_resource",resource="gateways",version="v1"} `,
			`webhook_patch_attempts_total{name="` + ours + `"} `,
		} {
			w.Must(w.metric(r, line))
		}
	})
	t.Run("Injection", func(t *testing.T) {
		w := w.in(t)
		w.Eventually("the tag has the caBundle", func() error {
			list, _, err := w.hooks(mutating, "istio-revision-tag-prod")
			if err == nil && (len(list) != 2 || len(list[0].ClientConfig.CABundle) == 0 || len(list[1].ClientConfig.CABundle) != 0 ||
				list[0].FailurePolicy != "Fail") {
				err = fmt.Errorf("%+v", list)
			}
			return err
		})
	})
	t.Run("Kept", func(t *testing.T) {
		w := w.in(t)
		for what, patch := range map[string]string{
			"policy":   `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
			"caBundle": `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`,
			"both": `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"},{"op":"replace","path":"/webhooks/0/failurePolicy",` +
				`"value":"Ignore"}]`,
		} {
			w.edit(validating, ours, patch)
			w.kept(what, ours, 1)
		}
		w.Must(w.Dynamic().Resource(validating).Delete(w.Ctx, ours, metav1.DeleteOptions{}))
		w.Write(w.configuration(ours, "default"))
		w.kept("made anew", ours, 1)
		list, version, err := w.hooks(validating, "validator-canary")
		w.Must(err)
		if version != canary || len(list[0].ClientConfig.CABundle) != 0 {
			t.Errorf("another revision's configuration was written: %+v", list)
		}
	})
	t.Run("Given away", func(t *testing.T) {
		w := w.in(t)
		w.Write(w.configuration("moved", "default"))
		w.kept("at first", "moved", 1)
		w.edit(validating, "moved",
			`[{"op":"replace","path":"/metadata/labels/istio.io~1rev","value":"canary"},{"op":"replace","path":"/webhooks/0/failurePolicy",`+
				`"value":"Ignore"}]`)
		w.edit(validating, ours, `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
		w.kept("after that", ours, 1)
		if list, _, err := w.hooks(validating, "moved"); err != nil || list[0].FailurePolicy != "Ignore" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// in returns the world for a subtest.
func (w *admission) in(t *testing.T) *admission {
	inner, other := *w.World, *w
	inner.T, other.World = t, &inner
	return &other
}

// writes creates a valid object 20 times a second until it is stopped.
type writes struct {
	mu      sync.Mutex
	done    int
	refused []error
	stop    chan struct{}
	ended   sync.WaitGroup
}

func (w *admission) write(prefix string) *writes {
	s := &writes{stop: make(chan struct{})}
	s.ended.Add(1)
	go func() {
		defer s.ended.Done()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
			err := w.create(gateway(fmt.Sprintf("%s-%d", prefix, i), good))
			s.mu.Lock()
			s.done++
			if err != nil {
				s.refused = append(s.refused, err)
			}
			s.mu.Unlock()
		}
	}()
	return s
}

// count returns how many writes there were.
func (s *writes) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// end stops the writes and returns how many there were, and those that were refused.
func (s *writes) end() (int, []error) {
	close(s.stop)
	s.ended.Wait()
	return s.done, s.refused
}

// more waits for some more writes.
func (w *admission) more(s *writes, n int) {
	w.T.Helper()
	want := s.count() + n
	w.Eventually("more writes", func() error {
		if n := s.count(); n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

// TestNothingIsRefusedWrongly: valid objects are stored while the server is away, starts, and has certificates of one
// CA after another. They are refused only while the server is away and the policy is Fail, and that ends without a
// write to the configuration.
func TestNothingIsRefusedWrongly(t *testing.T) {
	t.Parallel()
	w := newAdmission(t)
	w.plug("one")
	w.Write(w.configuration(ours, "default"))
	all := w.write("rotated")
	w.more(all, 10)
	first := w.launch("istiod-0")
	w.kept("at first", ours, 1)
	for i, organization := range []string{"two", "three"} {
		w.plug(organization)
		w.kept("both roots are trusted", ours, 2+i)
		w.Eventually("the new certificate is shown", func() error {
			shown, err := w.issuer()
			if err == nil && shown != organization {
				err = fmt.Errorf("it is of %s", shown)
			}
			return err
		})
		w.more(all, 10)
		if err := w.create(gateway("bad", bad)); err == nil || !strings.Contains(err.Error(), "configuration is invalid") {
			t.Errorf("after a change of the CA: %v", err)
		}
	}
	if n, refused := all.end(); len(refused) > 0 {
		t.Errorf("%d of %d writes were refused: %v", len(refused), n, refused[0])
	}

	w.Must(first.Kill())
	if err := w.create(gateway("away", good)); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("nobody answers, and the policy is Fail: %v", err)
	}
	_, before, err := w.hooks(validating, ours)
	w.Must(err)
	second := w.launch("istiod-0")
	w.Eventually("writes are stored again", func() error { return w.create(gateway("back", good)) })
	if _, after, err := w.hooks(validating, ours); err != nil || after != before {
		t.Errorf("the configuration was written: %v", err)
	}

	w.Must(second.Kill())
	w.edit(validating, ours, `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
	w.Eventually("writes are stored without the server", func() error { return w.create(gateway("without", good)) })
	all = w.write("again")
	w.more(all, 5)
	w.launch("istiod-0")
	w.kept("once more", ours, 3)
	w.more(all, 5)
	if n, refused := all.end(); len(refused) > 0 {
		t.Errorf("%d of %d writes were refused: %v", len(refused), n, refused[0])
	}
}
