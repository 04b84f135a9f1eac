package openness

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// verification is how a peer's certificate is verified.
type verification struct {
	certificate bool     // one is required
	authorities string   // by which it is signed; empty: any
	names       []string // of which it has one; none: any
	pins        []string // hashes of which it has one; none: any
	revoked     string   // the list of revoked ones; empty: none
	oldest      int      // version of TLS
	ciphers     []string // none: Envoy's own
}

func source(d *corev3.DataSource) string {
	switch {
	case d.GetFilename() != "":
		return d.GetFilename()
	case d.GetInlineString() != "":
		return d.GetInlineString()
	}
	return string(d.GetInlineBytes())
}

func verified(t *tlsv3.CommonTlsContext) verification {
	var v verification
	add := func(x *tlsv3.CertificateValidationContext) {
		if ca := source(x.GetTrustedCa()); ca != "" {
			v.authorities += ca + " "
		}
		if x.GetSystemRootCerts() != nil {
			v.authorities += "system "
		}
		for _, m := range x.GetMatchTypedSubjectAltNames() {
			v.names = append(v.names, matched(m.GetMatcher()))
		}
		for _, m := range x.GetMatchSubjectAltNames() { //nolint:staticcheck // Envoy still obeys the deprecated field.
			v.names = append(v.names, matched(m))
		}
		v.pins = append(append(v.pins, x.GetVerifyCertificateSpki()...), x.GetVerifyCertificateHash()...)
		v.revoked += source(x.GetCrl())
	}
	add(t.GetValidationContext())
	add(t.GetCombinedValidationContext().GetDefaultValidationContext())
	for _, s := range []*tlsv3.SdsSecretConfig{t.GetValidationContextSdsSecretConfig(),
		t.GetCombinedValidationContext().GetValidationContextSdsSecretConfig()} {
		if s != nil {
			v.authorities += s.GetName() + " "
		}
	}
	v.oldest = int(t.GetTlsParams().GetTlsMinimumProtocolVersion())
	v.ciphers = t.GetTlsParams().GetCipherSuites()
	v.names = slices.Compact(slices.Sorted(slices.Values(v.names)))
	return v
}

func matched(m *matcherv3.StringMatcher) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		return m.String()
	}
	return strings.ReplaceAll(string(text), " ", "")
}

// weaker returns how one verification is weaker than another.
func (v verification) weaker(than verification) (out []struct {
	kind Kind
	text string
}) {
	add := func(kind Kind, format string, args ...any) {
		out = append(out, struct {
			kind Kind
			text string
		}{kind, fmt.Sprintf(format, args...)})
	}
	switch {
	case v.certificate && v.authorities == names.NoCredential+" ":
		return nil // no certificate is signed by that authority
	case than.certificate && !v.certificate:
		add(Unverified, "no certificate is required")
	case than.authorities != "" && v.authorities == "":
		add(Unverified, "any authority; istiod: %s", than.authorities)
	case than.authorities != "" && v.authorities != than.authorities:
		add(Unverified, "another authority: %s; istiod: %s", v.authorities, than.authorities)
	}
	for _, list := range []struct {
		what         string
		theirs, ours []string
	}{{"names", than.names, v.names}, {"hashes", than.pins, v.pins}} {
		if len(list.theirs) == 0 {
			continue
		}
		if len(list.ours) == 0 {
			add(Unverified, "no %s are verified; istiod: %q", list.what, list.theirs)
			continue
		}
		for _, x := range list.ours {
			if !slices.Contains(list.theirs, x) {
				add(Unverified, "more %s: %q; istiod: %q", list.what, list.ours, list.theirs)
				break
			}
		}
	}
	if than.revoked != "" && v.revoked == "" {
		add(Unverified, "no revoked certificates; istiod: %s", than.revoked)
	}
	if v.oldest < than.oldest {
		add(Weaker, "TLS from version %d; istiod: %d", v.oldest, than.oldest)
	}
	if len(than.ciphers) > 0 && len(v.ciphers) == 0 {
		add(Weaker, "all cipher suites; istiod: %q", than.ciphers)
	} else if len(than.ciphers) > 0 {
		for _, x := range v.ciphers {
			if !slices.Contains(than.ciphers, x) {
				add(Weaker, "cipher suites %q; istiod: %q", v.ciphers, than.ciphers)
				break
			}
		}
	}
	return out
}

// clusters compares what clusters there are, and how they verify who they call.
func (c *comparison) clusters() error {
	theirs, err := decode[clusterv3.Cluster](c.theirs[envoy.ClusterType])
	if err != nil {
		return err
	}
	ours, err := decode[clusterv3.Cluster](c.ours[envoy.ClusterType])
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		mine, other := ours[name], theirs[name]
		if other == nil {
			c.report(Visible, name, "a cluster")
			continue
		}
		for _, labels := range []map[string]string{nil, {"tlsMode": "istio"}} {
			a, b := upstream(other, labels), upstream(mine, labels)
			switch {
			case a == nil:
			case b == nil:
				c.report(Plaintext, name, "to endpoints of %v", labels)
			default:
				for _, w := range b.weaker(*a) {
					c.report(w.kind, name, "to endpoints of %v: %s", labels, w.text)
				}
			}
		}
	}
	return nil
}

// upstream returns how a cluster verifies endpoints that have labels; nil if it calls them in plaintext.
func upstream(c *clusterv3.Cluster, labels map[string]string) *verification {
	socket := c.GetTransportSocket()
	for _, m := range c.GetTransportSocketMatches() {
		if has(labels, m.GetMatch()) {
			socket = m.GetTransportSocket()
			break
		}
	}
	t := &tlsv3.UpstreamTlsContext{}
	if !socket.GetTypedConfig().MessageIs(t) || socket.GetTypedConfig().UnmarshalTo(t) != nil {
		return nil
	}
	v := verified(t.GetCommonTlsContext())
	v.certificate = true
	options := &httpv3.HttpProtocolOptions{}
	for _, o := range c.GetTypedExtensionProtocolOptions() {
		if o.MessageIs(options) && o.UnmarshalTo(options) == nil && options.GetUpstreamHttpProtocolOptions().GetAutoSanValidation() {
			v.names = append(v.names, "the host that is called")
		}
	}
	if t.GetAutoSniSanValidation() {
		v.names = append(v.names, "the host that is called")
	}
	return &v
}

func has(labels map[string]string, match *structpb.Struct) bool {
	for k, x := range match.GetFields() {
		if labels[k] != x.GetStringValue() || x.GetStringValue() == "" {
			return false
		}
	}
	return true
}

// validity returns why Envoy would refuse a resource by the rules of its messages, nil if it would not.
func validity(r *envoy.Resource) error {
	m, err := message(r)
	if errors.Is(err, protoregistry.NotFound) {
		return nil // a type that is not linked
	}
	if err != nil {
		return err
	}
	return valid(m)
}

func valid(m proto.Message) error {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	return eachAny(m, valid)
}
