package ingest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
)

// pair returns a certificate and its key, in PEM.
func pair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotAfter: time.Unix(1000, 0)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	must.Succeed(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(t, err)
	return string(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// TestCredentials: what a Secret holds is there while something names it. What is broken keeps what was, and is a
// finding that does not show it.
func TestCredentials(t *testing.T) {
	s := newCredentialStore(func() time.Time { return time.Unix(0, 0) })
	secret := func(name string, data map[string]string) kinds.Change {
		k := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: name}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Position: "s.yaml:1:1", Spec: &corev1.Secret{StringData: data}}}
	}
	gateway := func(names ...string) kinds.Change {
		k := kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "gw"}
		g := &networkingv1.Gateway{}
		for _, n := range names {
			g.Servers = append(g.Servers, &networkingv1alpha3.Server{
				Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_MUTUAL, CredentialName: n},
			})
		}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: g}}
	}
	step := func(what string, findings int, want string, batch ...kinds.Change) []kinds.Change {
		t.Helper()
		out, _ := s.apply(batch)
		var got []string
		for _, c := range out {
			text := c.Key.String() + " gone"
			if c.Object != nil {
				held := c.Object.Spec.(*credentials.Credential)
				text = c.Key.String()
				if held.Certificate != nil {
					text += " certificate"
				}
				if held.Roots != nil {
					text += " roots"
				}
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %q, want %q", what, text, want)
		}
		list := s.findings()
		if len(list) != findings {
			t.Errorf("%s: %v", what, list)
		}
		for _, f := range list {
			if f.Object != "Secret a/x" || f.File != "s.yaml" || f.Fix == "" || strings.Contains(f.String(), "BEGIN") {
				t.Errorf("%s: %+v", what, f)
			}
		}
		return out
	}
	certificate, key := pair(t)
	_, other := pair(t)
	good := map[string]string{"tls.crt": certificate, "tls.key": key}
	step("nobody names it", 0, "", secret("x", good), secret("y", good))
	was := step("named", 0, "SecretCredential a/x certificate", gateway("x"))
	for now, want := range map[int64]int{999: 0, 1001: 1} {
		list := expiredCertificates(s.served(), time.Unix(now, 0))
		if len(list) != want || want > 0 && (list[0].Object != "Secret a/x" || list[0].File != "s.yaml") {
			t.Errorf("at %d: %v", now, list)
		}
	}
	step("written again", 0, "", secret("x", map[string]string{"tls.crt": certificate, "tls.key": key, "more": "data"}))
	step("another key", 1, "", secret("x", map[string]string{"tls.crt": certificate, "tls.key": other}))
	step("garbage", 2, "", secret("x", map[string]string{"tls.crt": "garbage", "tls.key": key, "ca.crt": "garbage"}))
	w := &World{findings: map[string][]diag.Diagnostic{"credentials": s.findings()}}
	if !w.UnusableSecret(secret("x", nil).Key) || w.UnusableSecret(secret("y", nil).Key) {
		t.Error("the broken Secret can be used, or the other one cannot")
	}
	is := step(
		"roots", 0, "SecretCredential a/x certificate roots",
		secret("x", map[string]string{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}),
	)
	if was[0].Object.Spec.(*credentials.Credential).Certificate != is[0].Object.Spec.(*credentials.Credential).Certificate {
		t.Error("the certificate is the same, and a new pointer")
	}
	step("roots of their own", 0, "SecretCredential a/x-cacert roots", secret("x-cacert", map[string]string{"cacert": certificate}))
	step("another is named", 0, "SecretCredential a/x gone, SecretCredential a/x-cacert gone, SecretCredential a/y certificate", gateway("y"))
	step("both", 0, "SecretCredential a/x certificate roots, SecretCredential a/x-cacert roots", gateway("x", "y"))
	step("gone", 0, "SecretCredential a/x gone", kinds.Change{Key: kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "x"}})
	step("broken from the beginning", 1, "SecretCredential a/x", secret("x", map[string]string{"tls.crt": "garbage", "tls.key": key}))
	step(
		"no Gateway", 0, "SecretCredential a/x gone, SecretCredential a/x-cacert gone, SecretCredential a/y gone",
		kinds.Change{Key: gateway().Key},
	)
	if s.errors != 3 {
		t.Errorf("%d errors", s.errors)
	}
	if len(s.names) > 0 || len(s.references) > 0 {
		t.Errorf("what nothing names is kept: %v, %v", s.names, s.references)
	}
}

// TestUnservedCredentials: a name by which nobody gives certificates is a finding at its field.
func TestUnservedCredentials(t *testing.T) {
	w := newTestWorld(t, Options{})
	gateway := func(name string) *kinds.Object {
		k := kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "gw"}
		return &kinds.Object{Key: k, Position: "g.yaml:1:1", Spec: &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{
			{Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_MUTUAL, CredentialNames: []string{"x", name}}},
		}}}
	}
	rule := func(name string) *kinds.Object {
		k := kinds.Key{Kind: kinds.DestinationRule, Namespace: "b", Name: "rule"}
		return &kinds.Object{Key: k, Position: "r.yaml:1:1", Spec: &networkingv1.DestinationRule{TrafficPolicy: &networkingv1alpha3.TrafficPolicy{
			Tls: &networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, CredentialName: name},
		}}}
	}
	for name, want := range map[string]bool{
		"x": false, "kubernetes://x": false, "kubernetes-gateway://a/x": false, "configmap://a/x": true, "x-cacert": true, "builtin://": false,
		"sds://x": true, "vault://x": true, "file-cert:a~b": true, "a/../b": true, "kubernetes://a/b/c": true,
	} {
		w.apply(gateway(name), rule(name))
		var got []string
		for _, d := range w.Findings() {
			if strings.Contains(d.Message, "names no Secret") || strings.Contains(d.Message, "provides CA certificates only") {
				got = append(got, d.Object+" "+d.Field+" "+d.File)
			}
		}
		var all []string
		if want {
			all = []string{
				"DestinationRule b/rule spec.trafficPolicy.tls.credentialName r.yaml", "Gateway b/gw spec.servers[0].tls.credentialNames[1] g.yaml",
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("%s: %v, want %v", name, got, all)
		}
	}
}

// TestMissingCredentialsOfRules: in a directory a DestinationRule that names a Secret which is in no namespace of a
// gateway's Pods is a finding.
func TestMissingCredentialsOfRules(t *testing.T) {
	w := newTestWorld(t, Options{Namespace: "istio-system"})
	key := func(kind *kinds.Kind, namespace, name string) kinds.Key {
		return kinds.Key{Kind: kind, Namespace: namespace, Name: name}
	}
	secret := func(namespace string) *kinds.Object {
		return &kinds.Object{Key: key(kinds.Secret, namespace, "x"), Spec: &corev1.Secret{}}
	}
	pod := func(namespace string) *kinds.Object {
		return &kinds.Object{Key: key(kinds.Pod, namespace, "gw-0"), Labels: map[string]string{"app": "gw"}, Spec: &corev1.Pod{}}
	}
	rule := &networkingv1.DestinationRule{Host: "x.example", TrafficPolicy: &networkingv1alpha3.TrafficPolicy{
		Tls: &networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE, CredentialName: "x"},
	}}
	found := func(want string) {
		t.Helper()
		got := ""
		for _, d := range w.references() {
			if d.Code == "IST0101" && strings.HasPrefix(d.Object, "DestinationRule") && strings.Contains(d.Message, "Secret") {
				got += d.Field + " " + d.Message[:strings.Index(d.Message, " does")]
			}
		}
		if got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	const field = "spec.trafficPolicy.tls.credentialName "
	w.apply(&kinds.Object{Key: key(kinds.DestinationRule, "b", "rule"), Spec: rule})
	found(field + "Secret b/x")
	w.apply(&kinds.Object{Key: key(
		kinds.Gateway, "b", "gw",
	), Spec: &networkingv1.Gateway{Selector: map[string]string{"app": "gw"}, Servers: []*networkingv1alpha3.Server{
		{Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_SIMPLE, CredentialName: "y"}},
	}}}, pod("c"), pod("d"), secret("b"))
	found(field + "Secret c/x")
	w.apply(secret("d"))
	found("")
}

// TestMissingCredentials: in a directory a Gateway that names a Secret which is not where its Pods are is a finding. In
// files that are only a part of a mesh, it is one if the Secret is elsewhere.
func TestMissingCredentials(t *testing.T) {
	t.Run("directory", func(t *testing.T) { missingCredentials(t, Options{Namespace: "istio-system"}) })
	t.Run("files", func(t *testing.T) { missingCredentials(t, Options{Namespace: "istio-system", Texts: &file.Texts{}}) })
}

func missingCredentials(t *testing.T, o Options) {
	w := newTestWorld(t, o)
	labels := map[string]string{"app": "gw"}
	pod := &kinds.Object{Key: kinds.Key{Kind: kinds.Pod, Namespace: "b", Name: "gw"}, Labels: labels, Spec: &corev1.Pod{}}
	gateway := kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "gw"}
	secret := func(namespace string) *kinds.Object {
		k := kinds.Key{Kind: kinds.Secret, Namespace: namespace, Name: "x"}
		return &kinds.Object{Key: k, Spec: &corev1.Secret{}}
	}
	w.apply(&kinds.Object{Key: gateway, Spec: &networkingv1.Gateway{Selector: labels, Servers: []*networkingv1alpha3.Server{
		{Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_SIMPLE, CredentialName: "x"}},
	}}}, pod)
	found := func() string {
		for _, d := range w.references() {
			if d.Code == "IST0101" && strings.Contains(d.Message, "Secret") {
				return d.Object + " " + d.Field + " " + d.Message
			}
		}
		return ""
	}
	if got := found(); (got == "") != o.partial() {
		t.Errorf("found %q without any such Secret", got)
	}
	w.apply(secret("a"))
	if got := found(); !strings.HasPrefix(got, "Gateway b/gw spec.servers[0].tls.credentialName Secret b/x does not exist, "+
		"and the proxies do not read the one of namespace a: ") {
		t.Errorf("found %q", got)
	}
	w.apply(secret("b"))
	if got := found(); got != "" {
		t.Errorf("found %q", got)
	}
}

// TestExpiry: all that proxies are sent of a Secret is a finding once it has expired.
func TestExpiry(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	authority := func(until int64) (*x509.Certificate, string) {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Unix(until, 0), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
		}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
		if err == nil {
			c, err = x509.ParseCertificate(der)
		}
		must.Succeed(t, err)
		return c, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	one, first := authority(500)
	_, second := authority(2000)
	list, err := x509.CreateRevocationList(
		rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Unix(0, 0), NextUpdate: time.Unix(1500, 0)}, one, private,
	)
	must.Succeed(t, err)
	certificate, key := pair(t)
	s := newCredentialStore(func() time.Time { return time.Unix(0, 0) })
	g := kinds.Key{Kind: kinds.Gateway, Namespace: "a", Name: "gw"}
	k := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "x"}
	s.apply([]kinds.Change{
		{Key: g, Object: &kinds.Object{Key: g, Spec: &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{
			{Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_MUTUAL, CredentialName: "x"}},
		}}}},
		{Key: k, Object: &kinds.Object{Key: k, Spec: &corev1.Secret{StringData: map[string]string{
			"tls.crt": certificate, "tls.key": key, "ca.crt": first + second,
			"ca.crl": string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: list})),
		}}}},
	})
	for _, c := range []struct {
		now  int64
		want []string
	}{
		{999, nil},
		{1001, []string{"the certificate that proxies are sent expired at 1970-01-01T00:16:40Z"}},
		{1501, []string{"the certificate", "a list of revoked certificates"}},
		{2001, []string{"the certificate", "the last of the CA certificates", "a list of revoked certificates"}},
	} {
		found := expiredCertificates(s.served(), time.Unix(c.now, 0))
		if len(found) != len(c.want) {
			t.Errorf("at %d: %v", c.now, found)
			continue
		}
		for i, want := range c.want {
			if d := found[i]; !strings.HasPrefix(d.Message, want) || d.Object != "Secret a/x" || d.Fix == "" {
				t.Errorf("at %d: %v, want %q", c.now, d, want)
			}
		}
	}
}

// TestLackingCredentials: a field whose Secret is there without the part that the field needs is a finding.
func TestLackingCredentials(t *testing.T) {
	certificate, key := pair(t)
	gateway := &kinds.Object{Key: kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "gw"}, Spec: &networkingv1.Gateway{
		Servers: []*networkingv1alpha3.Server{
			{Tls: &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_MUTUAL, CredentialName: "x"}},
		},
	}}
	const noRoots, noPair = "has no CA certificates, which verify", "has CA certificates only"
	for name, c := range map[string]struct {
		data map[string]map[string]string
		want string
	}{
		"whole":        {map[string]map[string]string{"x": {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}}, ""},
		"no roots":     {map[string]map[string]string{"x": {"tls.crt": certificate, "tls.key": key}}, noRoots},
		"roots beside": {map[string]map[string]string{"x": {"tls.crt": certificate, "tls.key": key}, "x-cacert": {"cacert": certificate}}, ""},
		"roots alone":  {map[string]map[string]string{"x": {"ca.crt": certificate}}, noPair},
		"no Secret":    {nil, ""},
		"broken":       {map[string]map[string]string{"x": {"tls.crt": "x", "tls.key": key}}, ""},
	} {
		w := newTestWorld(t, Options{})
		w.credentials.now = func() time.Time { return time.Unix(0, 0) }
		batch := []*kinds.Object{gateway}
		for secret, data := range c.data {
			key := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: secret}
			batch = append(batch, &kinds.Object{Key: key, Spec: &corev1.Secret{StringData: data}})
		}
		w.apply(batch...)
		var got []string
		for _, d := range w.Findings() {
			if strings.Contains(d.Message, noRoots) || strings.Contains(d.Message, noPair) {
				got = append(got, d.String())
			}
		}
		at := "Gateway b/gw: spec.servers[0].tls.credentialName: Secret a/x "
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], at+c.want)) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}
