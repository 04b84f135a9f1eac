package check

import (
	"context"
	"encoding/pem"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// hook is a mutating or validating webhook.
type hook struct {
	resource, configuration, name string
	client                        admissionv1.WebhookClientConfig
	policy                        *admissionv1.FailurePolicyType
	labels                        map[string]string
	validates                     bool
}

// hooks returns the webhooks of Istio's control planes.
func (c *Cluster) hooks(ctx context.Context) (all []hook, err error) {
	mutating, err := list[admissionv1.MutatingWebhookConfiguration](ctx, c,
		resource("admissionregistration.k8s.io", "mutatingwebhookconfigurations"), "", "")
	if err != nil {
		return nil, err
	}
	validating, err := list[admissionv1.ValidatingWebhookConfiguration](ctx, c,
		resource("admissionregistration.k8s.io", "validatingwebhookconfigurations"), "", "")
	if err != nil {
		return nil, err
	}
	for _, m := range mutating {
		for _, w := range m.Webhooks {
			all = append(all, hook{"mutatingwebhookconfiguration", m.Name, w.Name, w.ClientConfig, w.FailurePolicy, m.Labels, false})
		}
	}
	for _, v := range validating {
		for _, w := range v.Webhooks {
			all = append(all, hook{"validatingwebhookconfiguration", v.Name, w.Name, w.ClientConfig, w.FailurePolicy, v.Labels, true})
		}
	}
	return slices.DeleteFunc(all, func(h hook) bool {
		return h.labels[names.LabelRevision] == "" && !strings.HasSuffix(h.name, ".istio.io")
	}), nil
}

func (r *Report) webhooks(ctx context.Context, c *Cluster, roots string) {
	all, err := c.hooks(ctx)
	if r.unread("configurations", err) {
		return
	}
	injecting, validating, last := 0, 0, ""
	for _, h := range all {
		if !c.ours(h.labels) && h.labels[names.LabelRevision] != "default" {
			continue
		}
		if h.validates {
			validating++
		} else {
			injecting++
		}
		key := h.resource + "/" + h.configuration
		if key == last {
			continue // the webhooks of one configuration call one Service
		}
		last = key
		if s := h.client.Service; s != nil {
			service, err := get[corev1.Service](ctx, c, resource("", "services"), s.Namespace, s.Name)
			if r.unread(h.configuration, err) {
				continue
			}
			if service == nil {
				r.wrong(h.configuration, "kubectl delete "+h.resource+" "+h.configuration, "it calls the Service %s/%s, which does not exist",
					s.Namespace, s.Name)
				continue
			}
		}
		switch {
		case len(h.client.CABundle) == 0:
			r.wrong(h.configuration, c.restart(), "it has no caBundle, so the API server cannot call the webhook")
		case roots != "" && !trusts(h.client.CABundle, roots):
			r.wrong(h.configuration, c.restart(), "its caBundle contains no root of the mesh, so the API server does not trust the webhook")
		case h.validates && h.policy != nil && *h.policy == admissionv1.Ignore:
			r.warn(h.configuration, c.kubectl("logs deploy/istiod"+c.suffix()+" | grep -i webhook"),
				"failurePolicy is Ignore: invalid objects are stored while the server does not answer. The server sets Fail once the webhook works")
		}
	}
	switch {
	case injecting == 0:
		r.warn("injection", "helm upgrade istiod charts/istiod -n "+c.Namespace, "no webhook injects proxies")
	case validating == 0:
		r.warn("validation", "helm upgrade istiod charts/istiod -n "+c.Namespace, "no webhook validates objects")
	default:
		r.ok("configurations", "%d inject, %d validate", injecting, validating)
	}
}

// trusts reports whether a bundle contains one of the roots.
func trusts(bundle []byte, roots string) bool {
	for rest := []byte(roots); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		}
		for have := bundle; ; {
			var other *pem.Block
			if other, have = pem.Decode(have); other == nil {
				break
			}
			if string(other.Bytes) == string(block.Bytes) {
				return true
			}
		}
	}
}
