package validation_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// TestLastGoodOfAnother has the last good version of a policy that another control plane serves.
func TestLastGoodOfAnother(t *testing.T) {
	deny := &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_DENY, Rules: []*securityv1.Rule{{}}}
	doc := validation.Message(limits.Default(), kinds.AuthorizationPolicy,
		validation.Metadata{Namespace: "a", Name: "p" + kinds.LastGood}, deny)
	if doc.Object == nil || !doc.Object.IsLastGood() {
		t.Errorf("%+v", doc)
	}
}

func TestMessage(t *testing.T) {
	good := &networkingv1.ServiceEntry{Hosts: []string{"x.example"},
		Ports: []*networkingv1.ServicePort{{Number: 443, Name: "tls", Protocol: "TLS"}}, Resolution: networkingv1.ServiceEntry_DNS}
	meta := validation.Metadata{
		Namespace: "a", Name: "x", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"note": "any text\n"}, Created: time.Unix(1700000000, 123456789),
	}
	doc := validation.Message(limits.Default(), kinds.ServiceEntry, meta, good)
	o := doc.Object
	if o == nil || len(doc.Findings) != 0 {
		t.Fatalf("%+v", doc)
	}
	if o.Key != (kinds.Key{Kind: kinds.ServiceEntry, Namespace: "a", Name: "x"}) || o.Key != doc.Key ||
		!maps.Equal(o.Labels, meta.Labels) || !maps.Equal(o.Annotations, meta.Annotations) ||
		!o.Created.Equal(meta.Created) || !proto.Equal(o.Spec.(proto.Message), good) || o.Position != "" {
		t.Errorf("%+v", o)
	}
	newer := proto.Clone(good).(*networkingv1.ServiceEntry)
	newer.Ports[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1})
	if doc := validation.Message(limits.Default(), kinds.ServiceEntry, meta, newer); doc.Object == nil ||
		len(doc.Findings) != 1 || !proto.Equal(doc.Object.Spec.(proto.Message), good) {
		t.Errorf("a field of a newer release: %+v", doc)
	}
	for _, c := range []struct {
		name string
		edit func(*validation.Metadata, *networkingv1.ServiceEntry)
		want string
	}{
		{"namespace", func(m *validation.Metadata, _ *networkingv1.ServiceEntry) { m.Namespace = "A.b" }, "metadata.namespace"},
		{"name", func(m *validation.Metadata, _ *networkingv1.ServiceEntry) { m.Name = "a/b" }, "metadata.name"},
		{"no name", func(m *validation.Metadata, _ *networkingv1.ServiceEntry) { m.Name = "" }, "metadata.name"},
		{"label", func(m *validation.Metadata, _ *networkingv1.ServiceEntry) { m.Labels = map[string]string{"a": "b c"} }, "metadata.labels"},
		{"annotation", func(m *validation.Metadata, _ *networkingv1.ServiceEntry) {
			m.Annotations = map[string]string{"a b": "c"}
		}, "metadata.annotations"},
		{"spec", func(_ *validation.Metadata, s *networkingv1.ServiceEntry) { s.Ports[0].Number = 70000 }, "spec.ports[0].number"},
		{"enum", func(_ *validation.Metadata, s *networkingv1.ServiceEntry) { s.Resolution = 77 }, "spec.resolution"},
	} {
		m, s := meta, proto.Clone(good).(*networkingv1.ServiceEntry)
		c.edit(&m, s)
		doc := validation.Message(limits.Default(), kinds.ServiceEntry, m, s)
		if doc.Object != nil || len(doc.Findings) == 0 || !strings.HasPrefix(doc.Findings[0].Field, c.want) || doc.Findings[0].Line != 0 {
			t.Errorf("%s: %+v", c.name, doc)
		}
	}
}

func TestClosed(t *testing.T) {
	l, meta := limits.Default(), validation.Metadata{Namespace: "a", Name: "p", Labels: map[string]string{"a": "no label"}}
	selector := &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, c := range []struct {
		kind       *kinds.Kind
		spec, want proto.Message
	}{
		{kinds.AuthorizationPolicy, nil,
			&securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_DENY, Rules: []*securityv1.Rule{{}}}},
		{
			kinds.AuthorizationPolicy, &securityv1.AuthorizationPolicy{Selector: selector, Action: securityv1.AuthorizationPolicy_CUSTOM},
			&securityv1.AuthorizationPolicy{Selector: selector, Action: securityv1.AuthorizationPolicy_DENY, Rules: []*securityv1.Rule{{}}},
		},
		{kinds.AuthorizationPolicy, &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_AUDIT, Rules: []*securityv1.Rule{{}}},
			&securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_AUDIT}},
		{kinds.AuthorizationPolicy, &securityv1.AuthorizationPolicy{Selector: selector, Rules: []*securityv1.Rule{{}}},
			&securityv1.AuthorizationPolicy{Selector: selector}},
		{
			kinds.AuthorizationPolicy,
			&securityv1.AuthorizationPolicy{Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "*"}}},
			&securityv1.AuthorizationPolicy{},
		},
		{
			kinds.PeerAuthentication,
			&securityv1.PeerAuthentication{Mtls: &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_DISABLE}},
			&securityv1.PeerAuthentication{Mtls: &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}},
		},
		{kinds.RequestAuthentication, &securityv1.RequestAuthentication{Selector: selector, JwtRules: []*securityv1.JWTRule{{}}},
			&securityv1.RequestAuthentication{Selector: selector,
				JwtRules: []*securityv1.JWTRule{{Issuer: "unusable.invalid", Jwks: jwks.AcceptsNone}}}},
	} {
		o := validation.Unreadable(l, c.kind, meta, c.spec).Kept
		if o == nil || !proto.Equal(o.Spec.(proto.Message), c.want) || o.Name != "p" || o.Labels != nil {
			t.Errorf("%s %v: %+v", c.kind.Name, c.spec, o)
		}
	}
	if o := validation.Unreadable(l, kinds.AuthorizationPolicy, validation.Metadata{Namespace: "a", Name: "no name"}, nil).Kept; o != nil {
		t.Errorf("%+v", o)
	}
}
