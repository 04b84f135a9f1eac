package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// Kinds of webhook configurations.
var (
	Validating = registration("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
	Mutating   = registration("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
)

func registration(name, plural string) *kinds.Kind {
	return &kinds.Kind{Name: name, Group: registrationv1.GroupName, Versions: []string{"v1"}, Plural: plural, Cluster: true}
}

// object returns an empty object of a kind.
func object(k *kinds.Kind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(k.APIVersion(k.Versions[0]))
	u.SetKind(k.Name)
	return u
}

// injectorSuffix is the end of the names of webhooks that inject proxies. A mutating webhook with another name is not
// changed.
const injectorSuffix = "sidecar-injector.istio.io"

// config is a webhook configuration in the API server.
type config struct {
	kind     *kinds.Kind
	version  string // resourceVersion
	webhooks []hook
}

// hook is one of our webhooks.
type hook struct {
	name    string
	bundle  []byte
	closed  bool // the API server refuses objects if it cannot reach the webhook
	objects *metav1.LabelSelector
}

// parse reads our webhooks from a configuration.
func parse(kind *kinds.Kind, u *unstructured.Unstructured) (*config, error) {
	c := &config{kind: kind, version: u.GetResourceVersion()}
	add := func(
		name string, client registrationv1.WebhookClientConfig, policy *registrationv1.FailurePolicyType, objects *metav1.LabelSelector,
	) {
		closed := policy == nil || *policy == registrationv1.Fail // the default
		c.webhooks = append(c.webhooks, hook{name, client.CABundle, closed, objects})
	}
	if kind == Validating {
		var o registrationv1.ValidatingWebhookConfiguration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind.Name, u.GetName(), err)
		}
		for _, w := range o.Webhooks {
			add(w.Name, w.ClientConfig, w.FailurePolicy, w.ObjectSelector)
		}
		return c, nil
	}
	var o registrationv1.MutatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Name, u.GetName(), err)
	}
	for _, w := range o.Webhooks {
		if strings.HasSuffix(w.Name, injectorSuffix) {
			add(w.Name, w.ClientConfig, w.FailurePolicy, w.ObjectSelector)
		}
	}
	return c, nil
}

// trusts reports whether all webhooks have this caBundle.
func (c *config) trusts(bundle []byte) bool {
	return !slices.ContainsFunc(c.webhooks, func(h hook) bool { return !bytes.Equal(h.bundle, bundle) })
}

// open returns the validating webhooks that fail open: the API server accepts objects if it cannot reach them.
func (c *config) open() []hook {
	return lists.Filter(c.webhooks, func(h hook) bool { return c.kind == Validating && !h.closed })
}

// patch returns a strategic merge patch that sets the caBundle of each webhook and makes the webhooks in works fail
// closed, or nil if nothing differs. The patch names the version of the object, so it never adds a webhook that is
// gone.
func (c *config) patch(bundle []byte, works map[string]bool) []byte {
	var webhooks []any
	for _, h := range c.webhooks {
		w := map[string]any{"name": h.name}
		if !bytes.Equal(h.bundle, bundle) {
			w["clientConfig"] = map[string]any{"caBundle": bundle}
		}
		if works[h.name] && !h.closed {
			w["failurePolicy"] = registrationv1.Fail
		}
		if len(w) > 1 {
			webhooks = append(webhooks, w)
		}
	}
	if webhooks == nil {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": c.version}, "webhooks": webhooks})
	if err != nil {
		return nil // text and bytes always encode as JSON
	}
	return text
}

// labelled returns labels of an object that the selectors of the webhook match, or false if it finds none.
func (h hook) labelled() (labels.Set, bool) {
	set := labels.Set{}
	if h.objects == nil {
		return set, true
	}
	for name, value := range h.objects.MatchLabels {
		set[name] = value
	}
	for _, e := range h.objects.MatchExpressions {
		switch {
		case e.Operator == metav1.LabelSelectorOpIn && len(e.Values) > 0:
			set[e.Key] = e.Values[0]
		case e.Operator == metav1.LabelSelectorOpExists && set[e.Key] == "":
			set[e.Key] = "true"
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(h.objects)
	return set, err == nil && selector.Matches(set)
}
