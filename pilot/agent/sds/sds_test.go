package sds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/secrets"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// manager is a fake Manager with the secrets that a test sets.
type manager struct {
	mu   sync.Mutex
	all  map[string]*secrets.Secret
	subs map[int]func(string)
	next int
	used map[string]int // number of followers of a secret
}

func (m *manager) Follow(names []string) func() {
	count := func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, name := range names {
			m.used[name] += n
		}
	}
	count(1)
	return func() { count(-1) }
}

func (m *manager) Get(name string) (*secrets.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.all[name]; s != nil {
		return s, nil
	}
	return nil, secrets.ErrPending
}

func (m *manager) Subscribe(fn func(string)) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	id := m.next
	m.subs[id] = fn
	return func() { m.mu.Lock(); defer m.mu.Unlock(); delete(m.subs, id) }
}

// set sets a secret with a text.
func (m *manager) set(name, text string) {
	s := &secrets.Secret{Name: name, Roots: []byte(text)}
	if name != secrets.Roots {
		s = &secrets.Secret{Name: name, Chain: []byte(text), Key: []byte("key of " + text)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name] = s
	for _, fn := range m.subs {
		fn(name)
	}
}

// users returns the number of followers of a secret.
func (m *manager) users(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used[name]
}

// start runs a server until the test ends.
func start(t *testing.T, r prometheus.Registerer) (*manager, string, *Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sds") // a socket's path must be short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{all: map[string]*secrets.Secret{}, subs: map[int]func(string){}, used: map[string]int{}}
	path := filepath.Join(dir, "secrets", "socket")
	s, err := New(Options{Path: path, Manager: m, Registerer: r})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return m, path, s
}

// proxy is a stream of a fake Envoy.
type proxy struct {
	t *testing.T
	secretv3.SecretDiscoveryService_StreamSecretsClient
}

func dial(t *testing.T, path string) secretv3.SecretDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return secretv3.NewSecretDiscoveryServiceClient(conn)
}

func open(t *testing.T, path string) proxy {
	t.Helper()
	s, err := dial(t, path).StreamSecrets(t.Context())
	must.Succeed(t, err)
	return proxy{t, s}
}

func (p proxy) ask(nonce string, reason *rpcstatus.Status, names ...string) {
	p.t.Helper()
	must.Succeed(p.t, p.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: names, ResponseNonce: nonce,
		ErrorDetail: reason}))
}

// expect receives the secrets with these texts, and returns the nonce.
func (p proxy) expect(want ...string) string {
	p.t.Helper()
	r, err := p.Recv()
	must.Succeed(p.t, err)
	var got []string
	for _, a := range r.GetResources() {
		s := &tlsv3.Secret{}
		must.Succeed(p.t, a.UnmarshalTo(s))
		text := string(s.GetValidationContext().GetTrustedCa().GetInlineBytes())
		if c := s.GetTlsCertificate(); c != nil {
			text = string(c.GetCertificateChain().GetInlineBytes())
			if key := string(c.GetPrivateKey().GetInlineBytes()); key != "key of "+text {
				p.t.Errorf("the key is %q", key)
			}
		}
		got = append(got, s.GetName()+"="+text)
	}
	if !slices.Equal(got, want) || r.GetTypeUrl() != secretType || r.GetVersionInfo() == "" {
		p.t.Fatalf("received %q, want %q", got, want)
	}
	return r.GetNonce()
}

func TestStream(t *testing.T) {
	r := prometheus.NewRegistry()
	m, path, s := start(t, r)
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", i, err)
	}
	one, roots := open(t, path), open(t, path)
	one.ask("", nil, secrets.Workload)
	m.set(secrets.Workload, "c1") // Envoy is waiting for it
	nonce := one.expect("default=c1")
	one.ask(nonce, nil, secrets.Workload)
	m.set(secrets.Roots, "r1")
	roots.ask("", nil, secrets.Roots)
	acked := roots.expect("ROOTCA=r1")
	roots.ask(acked, nil, secrets.Roots)
	m.set(secrets.Workload, "c2")
	nonce = one.expect("default=c2") // without the roots, which have not changed

	one.ask(nonce, &rpcstatus.Status{Code: 3, Message: "bad"}, secrets.Workload)
	m.set(secrets.Workload, "c3")
	last := one.expect("default=c3")
	one.ask(last, nil, secrets.Workload)
	one.ask(nonce, nil, secrets.Roots) // an older response
	one.ask(last, nil, secrets.Workload, secrets.Roots)
	nonce = one.expect("ROOTCA=r1", "default=c3")
	one.ask(nonce, nil) // unsubscribes from both
	one.ask(nonce, nil, secrets.Roots)
	one.expect("ROOTCA=r1")
	m.set(secrets.Roots, "r2")
	roots.expect("ROOTCA=r2")
	one.expect("ROOTCA=r2")
	if w, r := m.users(secrets.Workload), m.users(secrets.Roots); w != 0 || r != 2 {
		t.Errorf("%d and %d streams follow the secrets, want 0 and 2", w, r)
	}
	if n := testutil.ToFloat64(s.rejected); n != 1 { // the server has read the later messages
		t.Errorf("%v rejections are counted", n)
	}
}

func TestRefused(t *testing.T) {
	_, path, _ := start(t, nil)
	names := make([]string, maxNames+1)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	for code, r := range map[codes.Code]*discoveryv3.DiscoveryRequest{
		codes.InvalidArgument: {TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}, codes.ResourceExhausted: {ResourceNames: names},
	} {
		p := open(t, path)
		must.Succeed(t, p.Send(r))
		if _, err := p.Recv(); status.Code(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
	c := dial(t, path)
	if _, err := c.FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	d, err := c.DeltaSecrets(t.Context())
	if err == nil {
		_, err = d.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// TestSockets checks that a stale socket is replaced, and that a served one is found.
func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "sds")
	must.Succeed(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	served := func(what string, want bool) {
		t.Helper()
		if Serving(path) != want {
			t.Errorf("%s: served is not %t", what, want)
		}
	}
	served("a socket that is not there", false)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must.Succeed(t, err)
	served("a socket with a server", true)
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	served("a socket that a process left behind", false)
	l, err := Listen(path, 0o600)
	must.Succeed(t, err)
	defer l.Close()
	served("the new socket", true)
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v are left, %v", all, err)
	}
	if _, err := Listen(filepath.Join(path, "socket"), 0o600); err == nil || !strings.Contains(err.Error(), "folder of a socket") {
		t.Errorf("a socket below a file: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a server of nothing")
	}
}
