package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	authv1 "istio.io/api/security/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// certificates is W9.
type certificates struct{}

// Settings of the measurement. An account may ask for 20 certificates at once, and each asks for fewer.
const (
	callers  = 64
	accounts = 250 // for each kind of key
	each     = 8   // certificates of one account, for each kind of proof
)

func (certificates) name() string { return "W9" }
func (certificates) needs() needs { return needs{delta: true} }

func (certificates) about(options) string {
	return fmt.Sprintf(
		"%d callers at once ask for %d certificates of %d pods (fewer where the mesh is smaller), with keys of both kinds (P-256 and RSA of "+
			"2048 bits). "+
			"Each proves by a token that is bound to its pod, and then by the certificate that it got, which leaves little but signing. "+
			"The goal is a ratio to the CPU of Go's crypto/x509 alone, measured before the server's: to check the request, and to sign, read "+
			"and verify a certificate of P-256.", callers,
		accounts*each, accounts)
}

func (certificates) rows() []row {
	var rows []row
	most := 4.0
	for _, kind := range keyKinds() {
		rows = append(rows, row{name: kind.name + ": crypto/x509 alone", unit: "ms", informative: true})
		for _, proof := range []string{"token", "certificate"} {
			of := fmt.Sprintf("%s, by %s: ", kind.name, proof)
			rows = append(rows,
				row{name: of + "CPU a certificate", unit: "ms"},
				row{name: of + "CPU ÷ crypto/x509 alone", informative: true, atMost: &most},
				row{name: of + "certificates a second", informative: true},
				row{name: of + "p99", unit: "ms"},
			)
		}
	}
	return rows
}

type keyKind struct {
	name string
	make func() (crypto.Signer, error)
}

func keyKinds() []keyKind {
	return []keyKind{
		{"P-256", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }},
		{"RSA", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) }},
	}
}

func (certificates) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	f := figures{}
	number := min(accounts, s.world.Services/len(keyKinds()))
	for i, kind := range keyKinds() { // each kind has its own accounts
		tokens, err := s.tokens(ctx, i*number, number)
		if err != nil {
			return nil, fmt.Errorf("tokens: %w", err)
		}
		key, err := kind.make()
		if err != nil {
			return nil, err
		}
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			return nil, err
		}
		text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))
		least, err := issueAlone(csr)
		if err != nil {
			return nil, err
		}
		f[kind.name+": crypto/x509 alone"] = ms(least)
		own := make([]tls.Certificate, len(tokens))
		for _, proof := range []string{"token", "certificate"} {
			clients := make([]client, len(tokens))
			for i := range clients {
				clients[i].ctx = metadata.AppendToOutgoingContext(ctx, "clusterid", "Kubernetes")
				var shown []tls.Certificate
				if proof == "token" {
					clients[i].ctx = metadata.AppendToOutgoingContext(clients[i].ctx, "authorization", "Bearer "+tokens[i])
				} else {
					shown = []tls.Certificate{own[i]}
				}
				conn, err := grpc.NewClient(s.secure,
					grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: shown}))) //nolint:gosec
				if err != nil {
					return nil, err
				}
				defer conn.Close()
				clients[i].grpc = authv1.NewIstioCertificateServiceClient(conn)
			}
			// The first client of each account connects. The account then authenticates with the certificate that it got.
			err := forAll(clients, 1, func(i int, c client) error {
				chain, err := c.issue(text)
				if err != nil {
					return err
				}
				own[i] = tls.Certificate{PrivateKey: key}
				for _, one := range chain[:len(chain)-1] {
					b, _ := pem.Decode([]byte(one))
					if b == nil {
						return errors.New("an answer without a certificate")
					}
					own[i].Certificate = append(own[i].Certificate, b.Bytes)
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("%s, by %s: %w", kind.name, proof, err)
			}
			before, err := s.usage()
			if err != nil {
				return nil, err
			}
			var mu sync.Mutex
			var took []time.Duration
			start := time.Now()
			err = forAll(clients, each, func(_ int, c client) error {
				began := time.Now()
				_, err := c.issue(text)
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s, by %s: %w", kind.name, proof, err)
			}
			all := time.Since(start)
			after, err := s.usage()
			if err != nil {
				return nil, err
			}
			slices.Sort(took)
			of := fmt.Sprintf("%s, by %s: ", kind.name, proof)
			f[of+"CPU a certificate"] = ms(after.cpu-before.cpu) / float64(len(took))
			f[of+"CPU ÷ crypto/x509 alone"] = f[of+"CPU a certificate"] / ms(least)
			f[of+"certificates a second"] = float64(len(took)) / all.Seconds()
			f[of+"p99"] = ms(percentile(took, 0.99))
		}
	}
	return f, nil
}

// issueAlone returns the CPU time that crypto/x509 needs to issue one certificate for a request, without a server: to
// check the signature of the request, and to sign, read and verify the certificate with keys of P-256.
func issueAlone(request []byte) (time.Duration, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return 0, err
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return 0, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: template.NotBefore, NotAfter: template.NotAfter}
	issue := func() error {
		r, err := x509.ParseCertificateRequest(request)
		if err != nil {
			return err
		}
		if err := r.CheckSignature(); err != nil {
			return err
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, authority, r.PublicKey, key)
		if err != nil {
			return err
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		_, err = c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	const times = 500
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
		return 0, err
	}
	for range times {
		if err := issue(); err != nil {
			return 0, err
		}
	}
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
		return 0, err
	}
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	return time.Duration(spent / times), nil
}

// client asks for certificates of one account.
type client struct {
	ctx  context.Context
	grpc authv1.IstioCertificateServiceClient
}

func (c client) issue(csr string) ([]string, error) {
	answer, err := c.grpc.CreateCertificate(c.ctx, &authv1.IstioCertificateRequest{Csr: csr})
	if err != nil {
		return nil, err
	}
	if len(answer.CertChain) < 2 {
		return nil, errors.New("an answer without a chain")
	}
	return answer.CertChain, nil
}

// forAll lets callers run do n times for each client, in parallel.
func forAll(clients []client, n int, do func(i int, c client) error) error {
	var g errgroup.Group
	g.SetLimit(callers)
	for range n {
		for i, c := range clients {
			g.Go(func() error { return do(i, c) })
		}
	}
	return g.Wait()
}

// tokens returns a token for the first pod of each of some services.
func (s *session) tokens(ctx context.Context, first, number int) ([]string, error) {
	tokens := make([]string, number)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callers)
	for i := range tokens {
		g.Go(func() (err error) {
			tokens[i], err = s.token(ctx, s.world.Namespace(first+i), world.Name(first+i), world.PodName(first+i, 0))
			return err
		})
	}
	return tokens, g.Wait()
}

// token returns a token of an account, which it creates if needed. The audience is istio-ca, and the token is bound to
// the pod.
func (s *session) token(ctx context.Context, namespace, account, pod string) (string, error) {
	core := s.clients.Core.CoreV1()
	_, err := core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	bound, err := core.Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	seconds := int64(time.Hour / time.Second)
	t, err := core.ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"istio-ca"}, ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: bound.Name, UID: bound.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(t.Status.Token), nil
}
