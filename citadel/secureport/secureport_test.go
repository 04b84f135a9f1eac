package secureport

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// config is a Mesh; nil: there is none yet.
type config struct{ *mesh.Config }

func (c config) Mesh() *mesh.Config { return c.Config }

func parts(m *mesh.Config) Parts {
	return Parts{
		Mesh: config{m}, Namespace: "istio-system", Limits: limits.Default(),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
}

// TestOptionsThatDoNotFit: a server whose options do not fit together is not made, and the error names what to set.
func TestOptionsThatDoNotFit(t *testing.T) {
	for want, c := range map[string]struct {
		o      Options
		member bool
	}{
		"":                    {Options{}, false},
		"need POD_NAME":       {Options{Signing: Signing{Server: "example/own"}}, false},
		"PILOT_CERT_PROVIDER": {Options{Signing: Signing{Workloads: true, Default: "example/mesh"}}, true},
		"set K8S_SIGNER":      {Options{Signing: Signing{Workloads: true}, Serving: authority.Files{Certificate: "x"}}, true},
		"JWT_RULE":            {Options{Rule: "x"}, false},
		"the key of tokens":   {Options{StateDir: filepath.Join("/dev/null", "x")}, false},
	} {
		p := parts(nil)
		if c.member {
			p.Client = &rest.Config{}
		}
		if _, err := New(c.o, p); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c.o, err, want)
		}
	}
}

// TestCertified: a server has a secure port if it has a CA, or others certify it.
func TestCertified(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		o      Options
		member bool
		want   bool
	}{
		{Options{Folder: empty}, false, false},
		{Options{Folder: empty}, true, true},
		{Options{Folder: empty, StateDir: empty}, false, true},
		{Options{Folder: empty, Off: true, StateDir: empty}, true, false},
		{Options{Off: true, Serving: authority.Files{Certificate: "x"}}, false, true},
		{Options{Off: true, Signing: Signing{Server: "example/own"}}, true, true},
	} {
		if got, err := c.o.Certified(c.member); got != c.want || err != nil {
			t.Errorf("%+v, %v: %v, %v", c.o, c.member, got, err)
		}
	}
	signed := Options{Folder: empty, Signing: Signing{Workloads: true, Default: "example/mesh"}}
	if _, err := signed.Certified(false); err == nil || !strings.Contains(err.Error(), "need POD_NAME") {
		t.Errorf("signers outside of a pod: %v", err)
	}
}

// TestSignersByDefault: if signers of Kubernetes sign for workloads, the roots of those that are asked by default are
// trusted.
func TestSignersByDefault(t *testing.T) {
	for _, c := range []struct {
		s    Signing
		want []string
	}{{Signing{Server: "own"}, nil}, {Signing{Workloads: true, Default: "mesh"}, []string{"mesh"}},
		{Signing{Workloads: true, Server: "own", Default: "mesh"}, []string{"mesh", "own"}}} {
		if got := c.s.byDefault(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c.s, got)
		}
	}
}

// TestNames: the server's certificate has the names of its Services, and by which the mesh configuration has proxies
// call it.
func TestNames(t *testing.T) {
	m := mesh.Default()
	m.DefaultConfig.DiscoveryAddress = "mesh.example:15012"
	for _, c := range []struct {
		m                  *mesh.Config
		revision, custom   string
		local              bool
		want, wantNeither  []string
		numberBesideIstiod int
	}{
		{nil, "default", "", false, nil, []string{"localhost", "istiod-default.istio-system.svc"}, 2},
		{m, "canary", "custom.example", true,
			[]string{"istiod-canary.istio-system.svc", "localhost", "::1", "mesh.example", "custom.example"}, nil, 8},
		{m, "", "mesh.example", false, []string{"mesh.example"}, []string{""}, 3},
	} {
		p := parts(c.m)
		p.Revision, p.Local = c.revision, c.local
		port, err := New(Options{ServerNames: []string{c.custom}}, p)
		must.Succeed(t, err)
		names := port.names()
		if names[0] != "istiod.istio-system.svc" || len(names) != c.numberBesideIstiod+1 {
			t.Errorf("%+v: %v", c, names)
		}
		for _, n := range c.want {
			if !slices.Contains(names, n) {
				t.Errorf("%s is not in %v", n, names)
			}
		}
		for _, n := range c.wantNeither {
			if slices.Contains(names, n) {
				t.Errorf("%s is in %v", n, names)
			}
		}
	}
}

// TestPeer: over plaintext only the address of a peer is known. Over TLS a peer without a credential is refused, and
// before there is a mesh configuration, it is told to try again.
func TestPeer(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, c := range []struct {
		m    *mesh.Config
		tls  bool
		want codes.Code
	}{{nil, false, codes.OK}, {nil, true, codes.Unavailable}, {mesh.Default(), true, codes.Unauthenticated}} {
		port, err := New(Options{}, parts(c.m))
		must.Succeed(t, err)
		from := &peer.Peer{Addr: address}
		if c.tls {
			from.AuthInfo = credentials.TLSInfo{}
		}
		p, err := port.Peer(peer.NewContext(t.Context(), from))
		if status.Code(err) != c.want || p.Proved() || p.Address.Port() != 1 {
			t.Errorf("TLS %v, %v: %v, %v", c.tls, c.m != nil, p, err)
		}
		if _, err := port.Bearer(t.Context(), p.Address, ""); errors.Is(err, authenticate.ErrUnavailable) != (c.m == nil) || err == nil {
			t.Errorf("a bearer: %v", err)
		}
	}
}
