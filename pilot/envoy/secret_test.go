package envoy_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const canary = "canary-in-a-secret"

func secret(name string) *envoy.Resource {
	return envoy.NewResource(name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(canary)}},
	}}})
}

// TestSecretIsPrintedRedacted prints a secret in every way that fmt, JSON and logs have.
func TestSecretIsPrintedRedacted(t *testing.T) {
	r := secret("kubernetes://cert")
	if !r.Secret() || !bytes.Contains(r.Bytes(), []byte(canary)) || envoy.NewResource("r", &routev3.RouteConfiguration{}).Secret() {
		t.Fatal("a secret is no secret, or has no content")
	}
	var shown []string
	for _, v := range []any{r, *r, []*envoy.Resource{r}, []envoy.Resource{*r}, map[string]*envoy.Resource{"": r},
		struct{ R *envoy.Resource }{r}, envoy.NewSet([]*envoy.Resource{r}), envoy.Union{Shared: envoy.NewSet([]*envoy.Resource{r})}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		b, err := json.Marshal(v)
		must.Succeed(t, err)
		shown = append(shown, string(b))
		var text, object bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("x", "resource", v)
		slog.New(slog.NewJSONHandler(&object, nil)).Info("x", "resource", v)
		shown = append(shown, text.String(), object.String())
	}
	shown = append(shown, string(r.Redacted().Bytes()), string(r.Redacted().Value()))
	content := []byte(canary)
	decimal, syntax := fmt.Sprintf("%d", content), fmt.Sprintf("%#v", content)
	for _, s := range shown {
		for _, form := range []string{canary, hex.EncodeToString(content), "Y2FuYXJ5LWluLWEtc2VjcmV0", strings.Trim(decimal, "[]"),
			strings.Trim(syntax, "[]byte{}")} {
			if strings.Contains(strings.ToLower(s), strings.ToLower(form)) {
				t.Errorf("%.300s shows it", s)
			}
		}
	}
	if got, want := fmt.Sprint(r), "kubernetes://cert@"+r.Version+" [redacted]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if x := r.Redacted(); x.Name != r.Name || x.Version != r.Version || x.Size() != 0 || x.Redacted().String() != r.String() {
		t.Errorf("redacted: %v of %d bytes", x, x.Size())
	}
	if other := envoy.NewResource("r", &routev3.RouteConfiguration{}); other.Redacted() != other {
		t.Error("a route configuration is redacted")
	}
}

// TestSecretTypes: what a peer may receive is decided by name, so nothing of such a type comes without having been
// named.
func TestSecretTypes(t *testing.T) {
	urls := []string{
		envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType, envoy.SecretType,
		envoy.ExtensionType, envoy.NameTableType, envoy.ProxyConfigType,
	}
	if len(urls) != len(envoy.ShortTypes())-1 {
		t.Fatal("a type is missing here")
	}
	for _, url := range append(urls, "what.Ever") {
		x := envoy.TypeOf(url)
		if x.Secret != (url == envoy.SecretType) || x.Secret && (!x.Named || x.Complete || x.Total || x.Live) {
			t.Errorf("%+v", x)
		}
	}
}

// TestMemoKeepsNoIdleSecret: as long as somebody holds a secret it is cached as any other resource, and no longer.
func TestMemoKeepsNoIdleSecret(t *testing.T) {
	m := envoy.NewMemo(1<<20, nil)
	secrets := envoy.NewMemoTable(m, secret)
	routes := envoy.NewMemoTable(m, func(name string) *envoy.Resource {
		return envoy.NewResource(name, &routev3.RouteConfiguration{Name: name})
	})
	held := secrets.Get("a")
	if secrets.Get("a") != held || secrets.Get("b") == nil || routes.Get("80") == nil {
		t.Fatal("it is not cached")
	}
	for end := time.Now().Add(2 * time.Minute); secrets.Len() != 1; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("%d secrets are cached, and one is held", secrets.Len())
		}
	}
	runtime.GC()
	if secrets.Get("a") != held || routes.Len() != 1 {
		t.Error("what is held, or may be idle, is gone")
	}
	runtime.KeepAlive(held)
}
