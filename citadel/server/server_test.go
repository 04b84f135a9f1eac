package server_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/server"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var web = identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}

// byToken authenticates whoever presents a known word as a token.
type byToken struct{}

func (byToken) Authenticate(_ context.Context, r authenticate.Request) (identity.Peer, error) {
	switch {
	case r.Token == "":
		return identity.Peer{}, authenticate.ErrNoCredential
	case r.Token == "later":
		return identity.Peer{}, fmt.Errorf("%w: the API server does not answer", authenticate.ErrUnavailable)
	case strings.HasPrefix(r.Token, "good-"):
		name, uid, _ := strings.Cut(strings.TrimPrefix(r.Token, "good-"), "@")
		part := strings.Split(name+"/pod/", "/") // the account, the pod that it is bound to, and its cluster
		return identity.Peer{
			ID:    identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: part[0]},
			Proof: identity.Token, Bound: identity.Bound{Cluster: part[2], Pod: part[1], PodUID: uid},
		}, nil
	}
	return identity.Peer{}, errors.New("wrong")
}

// clusterLocal is a mesh that trusts every root.
type clusterLocal struct{ authenticate.TrustDomains }

func (clusterLocal) TrustDomain() string { return "cluster.local" }

func (clusterLocal) Trusts(trustDomain string) bool { return trustDomain == "cluster.local" }

func (clusterLocal) VerifyTrust([]*x509.Certificate, string) (bool, error) { return false, nil }

// workloads are the pods of two clusters. Those of cluster "stale" may have changed.
type workloads struct {
	has   bool // every account
	err   error
	asked identity.ID
}

func (*workloads) Pod(_, namespace, name string) (identity.Pod, bool) {
	pods := map[string]identity.Pod{"pod": {Node: "n1"}, "unscheduled": {UID: "1"}, "another": {UID: "2", Node: "n1"}, "gone": {}}
	pod, known := pods[name]
	pod.ServiceAccount = "ztunnel"
	if name == "gone" {
		pod = identity.Pod{}
	}
	return pod, known && namespace == "a"
}

func (*workloads) CurrentPods(cluster string) bool { return cluster != "stale" }

func (*workloads) RunsOn(_, node, namespace, _ string) bool { return node == "n1" && namespace == "b" }

func (w *workloads) HasAccount(namespace, account string) (bool, error) {
	w.asked = identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: account}
	return w.has, w.err
}

// serve runs a Server over TLS, with a certificate of its own CA, and returns a client and the metrics.
func serve(t testing.TB, change func(*server.Options)) (authv1.IstioCertificateServiceClient, *x509.CertPool, *prometheus.Registry) {
	t.Helper()
	conn, pool, reg := start(t, change)
	return authv1.NewIstioCertificateServiceClient(conn), pool, reg
}

func start(t testing.TB, change func(*server.Options)) (*grpc.ClientConn, *x509.CertPool, *prometheus.Registry) {
	t.Helper()
	issuer := ca.New(ca.Options{TTL: time.Hour, MaxTTL: 24 * time.Hour})
	b, err := pki.NewSelfSigned("cluster.local", 24*365*time.Hour, time.Now())
	must.Succeed(t, err)
	issuer.Use(b)
	list := authenticate.List{authenticate.Certificates{TrustDomains: clusterLocal{}}, byToken{}}
	reg := prometheus.NewRegistry()
	o := server.Options{
		Issuer: issuer, Registerer: reg, Log: slog.New(slog.DiscardHandler), TrustDomains: clusterLocal{}, Workloads: &workloads{has: true},
		Authenticate: func(ctx context.Context) (identity.Peer, error) {
			return list.Authenticate(ctx, authenticate.FromContext(ctx))
		},
	}
	if change != nil {
		change(&o)
	}
	s := server.New(o)
	key := newKey(t)
	own, err := issuer.IssueServer(issuer.Bundle(), []string{"istiod.istio-system.svc"}, key.Public(), time.Hour)
	must.Succeed(t, err)
	leaf, _ := pem.Decode(own.Chain[0])
	pool := x509.NewCertPool()
	pool.AddCert(b.Roots[0])
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Bytes}, PrivateKey: key}},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: pool,
	})))
	s.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return dial(t, l.Addr().String(), pool, nil), pool, reg
}

func dial(t testing.TB, address string, pool *x509.CertPool, own *tls.Certificate) *grpc.ClientConn {
	t.Helper()
	c := &tls.Config{RootCAs: pool, ServerName: "istiod.istio-system.svc"}
	if own != nil {
		c.Certificates = []tls.Certificate{*own}
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := pki.GenerateKey()
	must.Succeed(t, err)
	return k
}

func csr(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func as(t testing.TB, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// TestCreateCertificate asks as callers of every kind.
func TestCreateCertificate(t *testing.T) {
	client, pool, reg := serve(t, func(o *server.Options) {
		o.NodeAccounts = []server.NodeAccount{{Namespace: "a", Name: "ztunnel"}}
	})
	key := newKey(t)
	good := csr(t, key)
	impersonate := func(id string) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(id)}}
	}
	for name, c := range map[string]struct {
		token string
		r     *authv1.IstioCertificateRequest
		code  codes.Code
		id    string
	}{
		"good":              {"good-web", &authv1.IstioCertificateRequest{Csr: good, ValidityDuration: 600}, codes.OK, web.String()},
		"default lifetime":  {"good-web", &authv1.IstioCertificateRequest{Csr: good}, codes.OK, web.String()},
		"no token":          {"", &authv1.IstioCertificateRequest{Csr: good}, codes.Unauthenticated, ""},
		"wrong token":       {"x", &authv1.IstioCertificateRequest{Csr: good}, codes.Unauthenticated, ""},
		"nobody to ask":     {"later", &authv1.IstioCertificateRequest{Csr: good}, codes.Unavailable, ""},
		"no request":        {"good-web", &authv1.IstioCertificateRequest{}, codes.InvalidArgument, ""},
		"broken request":    {"good-web", &authv1.IstioCertificateRequest{Csr: good[:200]}, codes.InvalidArgument, ""},
		"negative lifetime": {"good-web", &authv1.IstioCertificateRequest{Csr: good, ValidityDuration: -1}, codes.InvalidArgument, ""},
		"a lifetime that overflows": {"good-web",
			&authv1.IstioCertificateRequest{Csr: good, ValidityDuration: 1 << 62}, codes.InvalidArgument, ""},
		"ninety days": {"good-web", &authv1.IstioCertificateRequest{Csr: good, ValidityDuration: 90 * 86400},
			codes.InvalidArgument, ""},
		"impersonates": {"good-ztunnel", &authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")},
			codes.OK, "spiffe://cluster.local/ns/b/sa/db"},
		"impersonates elsewhere": {"good-ztunnel",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/c/sa/db")}, codes.PermissionDenied, ""},
		"impersonates a stranger": {"good-ztunnel",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://other/ns/b/sa/db")}, codes.PermissionDenied, ""},
		"impersonates without pod": {"good-ztunnel/",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.PermissionDenied, ""},
		"impersonates too early": {"good-ztunnel/new",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.Unavailable, ""},
		"impersonates by old pods": {"good-ztunnel/pod/stale",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.Unavailable, ""},
		"has no node yet": {"good-ztunnel/unscheduled@1",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.Unavailable, ""},
		"its pod is gone": {"good-ztunnel/gone@1",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.Unavailable, ""},
		"its pod is another": {"good-ztunnel/another@1",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.PermissionDenied, ""},
		"impersonates nobody": {"good-ztunnel",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("alice")}, codes.InvalidArgument, ""},
		"may not impersonate": {"good-web",
			&authv1.IstioCertificateRequest{Csr: good, Metadata: impersonate("spiffe://cluster.local/ns/b/sa/db")}, codes.PermissionDenied, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.token != "" {
				ctx = as(t, c.token)
			}
			a, err := client.CreateCertificate(ctx, c.r)
			if status.Code(err) != c.code {
				t.Fatalf("%v", err)
			}
			if err != nil {
				return
			}
			leaf, err := pki.ParseCertificates([]byte(a.CertChain[0]))
			if err != nil || leaf[0].URIs[0].String() != c.id {
				t.Fatalf("%v, %v", leaf, err)
			}
			if _, err := leaf[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Error(err)
			}
			want := max(600*time.Second, time.Duration(c.r.ValidityDuration)*time.Second)
			if c.r.ValidityDuration > 0 && time.Until(leaf[0].NotAfter) > want {
				t.Errorf("valid until %v", leaf[0].NotAfter)
			}
		})
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP citadel_server_authentication_failure_count Certificate requests whose caller could not be authenticated.
# TYPE citadel_server_authentication_failure_count counter
citadel_server_authentication_failure_count 3
# HELP citadel_server_csr_count Certificate requests.
# TYPE citadel_server_csr_count counter
citadel_server_csr_count 21
# HELP citadel_server_csr_parsing_err_count Certificate requests that were malformed, or had a key that is not accepted.
# TYPE citadel_server_csr_parsing_err_count counter
citadel_server_csr_parsing_err_count 3
# HELP citadel_server_id_extraction_err_count Certificate requests for an identity that the caller may not have.
# TYPE citadel_server_id_extraction_err_count counter
citadel_server_id_extraction_err_count 10
# HELP citadel_server_success_cert_issuance_count Certificates issued.
# TYPE citadel_server_success_cert_issuance_count counter
citadel_server_success_cert_issuance_count 3
`), "citadel_server_csr_count", "citadel_server_authentication_failure_count", "citadel_server_csr_parsing_err_count",
		"citadel_server_id_extraction_err_count", "citadel_server_success_cert_issuance_count"); err != nil {
		t.Error(err)
	}
}

// TestFlood has one identity ask a thousand times while five hundred others ask once, at the same time: each of those
// gets its certificate, and the one gets no more than its share.
func TestFlood(t *testing.T) {
	client, _, _ := serve(t, func(o *server.Options) { o.PerIdentity, o.Burst = 1e-6, 20 })
	good := csr(t, newKey(t))
	var wg sync.WaitGroup
	var flooded atomic.Int64
	for worker := range 50 {
		wg.Go(func() {
			for n := range 30 {
				token, other := "good-web", n%3 == 0
				if other {
					token = fmt.Sprintf("good-w%d-%d", worker, n)
				}
				_, err := client.CreateCertificate(as(t, token), &authv1.IstioCertificateRequest{Csr: good})
				switch {
				case other && err != nil:
					t.Errorf("%s: %v", token, err)
				case !other && err == nil:
					flooded.Add(1)
				case !other && status.Code(err) != codes.ResourceExhausted:
					t.Errorf("%s: %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	if n := flooded.Load(); n != 20 {
		t.Errorf("%d certificates for one identity", n)
	}
}

// slow is an issuer whose certificates for one account take until release is closed.
type slow struct {
	release   chan struct{}
	now, most atomic.Int64
}

func (s *slow) Issue(_ context.Context, q ca.Request) (*ca.Issued, error) {
	if q.ID.ServiceAccount == "flood" {
		now := s.now.Add(1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		<-s.release
		s.now.Add(-1)
	}
	return &ca.Issued{Chain: [][]byte{[]byte("certificate")}}, nil
}

// TestSigningsOfOneIdentity checks that of the certificates that are made at a time one identity has a tenth, however
// many it waits for, so that another identity is issued one at once.
func TestSigningsOfOneIdentity(t *testing.T) {
	issuer := &slow{release: make(chan struct{})}
	client, _, _ := serve(t, func(o *server.Options) { o.Issuer, o.AtOnce = issuer, 20 })
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if _, err := client.CreateCertificate(as(t, "good-flood"), &authv1.IstioCertificateRequest{Csr: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	for issuer.now.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		if _, err := client.CreateCertificate(as(t, "good-web"), &authv1.IstioCertificateRequest{Csr: "x"}); err != nil {
			t.Error(err)
		}
	}
	close(issuer.release)
	all.Wait()
	if n := issuer.most.Load(); n != 2 {
		t.Errorf("%d certificates of one identity are made at a time", n)
	}
}

// TestPodsOfOneServiceAccount start together: one that asks all the time takes nothing from the others.
func TestPodsOfOneServiceAccount(t *testing.T) {
	client, _, _ := serve(t, func(o *server.Options) { o.PerIdentity, o.Burst = 1e-6, 2 })
	good := csr(t, newKey(t))
	ask := func(token string) codes.Code {
		_, err := client.CreateCertificate(as(t, token), &authv1.IstioCertificateRequest{Csr: good})
		return status.Code(err)
	}
	for n := range 100 {
		if code := ask(fmt.Sprintf("good-web@pod-%d", n)); code != codes.OK {
			t.Fatalf("pod %d: %v", n, code)
		}
	}
	if first, second := ask("good-web@pod-0"), ask("good-web@pod-0"); first != codes.OK || second != codes.ResourceExhausted {
		t.Errorf("%v, %v", first, second)
	}
}

// TestStrangersSendNothing: a caller that proves nothing is refused before it has sent its request.
func TestStrangersSendNothing(t *testing.T) {
	conn, _, _ := start(t, nil)
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "x": codes.Unauthenticated, "later": codes.Unavailable} {
		ctx, cancel := context.WithTimeout(as(t, token), time.Minute)
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, authv1.IstioCertificateService_CreateCertificate_FullMethodName)
		must.Succeed(t, err)
		if err := call.RecvMsg(&authv1.IstioCertificateResponse{}); status.Code(err) != want {
			t.Errorf("%q: %v", token, err)
		}
		cancel()
	}
}

// TestRenewal: by a certificate alone a caller gets another one only if something may run as its account, and learns
// why not. By a token it gets one in any case.
func TestRenewal(t *testing.T) {
	t.Parallel()
	w := &workloads{}
	conn, pool, _ := start(t, func(o *server.Options) { o.Workloads = w })
	key := newKey(t)
	response, err := authv1.NewIstioCertificateServiceClient(conn).CreateCertificate(as(t, "good-web"),
		&authv1.IstioCertificateRequest{Csr: csr(t, key)})
	if err != nil {
		t.Fatalf("by a token: %v", err)
	}
	leaf, _ := pem.Decode([]byte(response.CertChain[0]))
	renewing := authv1.NewIstioCertificateServiceClient(dial(t, conn.Target(),
		pool, &tls.Certificate{Certificate: [][]byte{leaf.Bytes}, PrivateKey: key}))
	for _, c := range []struct {
		has  bool
		err  error
		want codes.Code
		why  string
	}{
		{true, nil, codes.OK, ""}, {false, nil, codes.PermissionDenied, "has the service account web"},
		{false, errors.New("no pods are known"), codes.Unavailable, "no pods are known"},
	} {
		w.has, w.err = c.has, c.err
		_, err := renewing.CreateCertificate(t.Context(), &authv1.IstioCertificateRequest{Csr: csr(t, newKey(t))})
		if status.Code(err) != c.want || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %v with %q", err, c.want, c.why)
		}
	}
	if w.asked != web {
		t.Errorf("asked about %s", w.asked)
	}
}

// issuing is an issuer that fails.
type issuing struct{ err error }

func (i issuing) Issue(context.Context, ca.Request) (*ca.Issued, error) { return nil, i.err }

// TestFailuresOfTheIssuer: a caller is told to try again where that may help, and of a fault within the CA no more than
// that there was one.
func TestFailuresOfTheIssuer(t *testing.T) {
	for want, failure := range map[codes.Code]error{
		codes.Unavailable:     fmt.Errorf("%w: no certificate yet", ca.ErrUnavailable),
		codes.Internal:        fmt.Errorf("%w: the secret is at /x", ca.ErrInternal),
		codes.InvalidArgument: errors.New("no such key"),
	} {
		client, _, _ := serve(t, func(o *server.Options) { o.Issuer = issuing{failure} })
		_, err := client.CreateCertificate(as(t, "good-web"), &authv1.IstioCertificateRequest{Csr: csr(t, newKey(t))})
		if status.Code(err) != want || strings.Contains(err.Error(), "/x") {
			t.Errorf("%v: %v, want %v", failure, err, want)
		}
	}
}

// TestFederatedCallersGetNone: if a root of aliases alone vouches for a caller, it gets no certificate, of its own
// identity or of another: one of this CA would be good for more than that root is.
func TestFederatedCallersGetNone(t *testing.T) {
	federated := false
	client, _, _ := serve(t, func(o *server.Options) {
		o.Authenticate = func(context.Context) (identity.Peer, error) {
			id := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "ztunnel"}
			return identity.Peer{ID: id, Proof: identity.Certificate, Bound: identity.Bound{Pod: "pod"}, Federated: federated}, nil
		}
		o.NodeAccounts = []server.NodeAccount{{Namespace: "a", Name: "ztunnel"}}
	})
	r := &authv1.IstioCertificateRequest{Csr: csr(t, newKey(t))}
	other := &structpb.Struct{Fields: map[string]*structpb.Value{
		"ImpersonatedIdentity": structpb.NewStringValue("spiffe://cluster.local/ns/b/sa/db"),
	}}
	for _, metadata := range []*structpb.Struct{nil, other} {
		for is, want := range map[bool]codes.Code{false: codes.OK, true: codes.PermissionDenied} {
			federated, r.Metadata = is, metadata
			if _, err := client.CreateCertificate(t.Context(), r); status.Code(err) != want {
				t.Errorf("federated %v, as %v: %v, want %v", is, metadata, err, want)
			}
		}
	}
}
