package bootstrap

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestOpenIDProvider: a token of JWT_RULE leads to a certificate and to a stream of its service account, whether the
// rule says where the keys are or the provider does. It is fetched as everything that is named by a URL, so from no
// address of this host that is not allowed.
func TestOpenIDProvider(t *testing.T) {
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	must.Succeed(t, err)
	var provider *httptest.Server
	provider = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": provider.URL, "jwks_uri": provider.URL + "/keys"})
		case "/keys":
			_ = json.NewEncoder(w).Encode(
				jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	defer provider.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	must.Succeed(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw}), 0o600))
	token := func(audience string) string {
		text, err := jwt.Signed(signer).Claims(map[string]any{
			"iss": provider.URL, "aud": audience, "sub": "system:serviceaccount:a:web",
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		}).Serialize()
		must.Succeed(t, err)
		return text
	}
	for _, c := range []struct {
		what, uri string
		allowed   bool
	}{{"a URI", provider.URL + "/keys", true}, {"the provider's document", "", true}, {"an address that is not allowed", "", false}} {
		t.Run(c.what, func(t *testing.T) {
			o := certificateOptions(t)
			rule, err := json.Marshal(map[string]any{"issuer": provider.URL, "jwks_uri": c.uri, "audiences": []string{"mesh"}})
			must.Succeed(t, err)
			o.Certificates.Rule, o.KeySets.ExtraRoots = string(rule), roots
			if c.allowed {
				o.KeySets.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
			}
			s := started(t, o)
			conn := dialSecure(t, s.Addresses().SecureGRPC, rootsOf(t, o))
			bearer := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token("mesh"))
			own, err := issued(bearer, t, conn)
			if !c.allowed {
				if status.Code(err) != codes.Unavailable {
					t.Errorf("%v", err)
				}
				return
			}
			must.Succeed(t, err)
			if len(own.Leaf.URIs) != 1 || own.Leaf.URIs[0].String() != "spiffe://cluster.local/ns/a/sa/web" {
				t.Errorf("%v", own.Leaf.URIs)
			}
			if _, err := streamAs(bearer, t, conn, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"); err != nil {
				t.Errorf("a stream: %v", err)
			}
			wrong := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token("another"))
			if _, err := issued(wrong, t, conn); status.Code(err) != codes.Unauthenticated {
				t.Errorf("for another audience: %v", err)
			}
		})
	}
}
