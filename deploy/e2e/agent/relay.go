package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/sds"
)

// Relay takes plaintext connections and passes them on over mTLS, as an account.
type Relay struct {
	Address string

	listener net.Listener
	to       string
	config   *tls.Config
	mu       sync.Mutex
	open     map[net.Conn]struct{}
	serving  sync.WaitGroup
}

// Connect starts a relay to the secure port of a control plane, as an account that an issuer certifies. It listens at
// host.
func Connect(ctx context.Context, host string, issuer sds.Issuer, to, namespace, account string) (*Relay, error) {
	chain, key, roots, err := issuer.Issue(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return NewRelay(host, to, pool, &own)
}

// NewRelay starts a relay that listens at host, and trusts some roots. Without a certificate it has no identity.
func NewRelay(host, to string, roots *x509.CertPool, own *tls.Certificate) (*Relay, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	r := &Relay{Address: l.Addr().String(), listener: l, to: to, open: map[net.Conn]struct{}{}}
	r.config = &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	if own != nil {
		r.config.Certificates = []tls.Certificate{*own}
	}
	r.serving.Go(r.accept)
	return r, nil
}

func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.serving.Go(func() {
			if err := safe.Do("relay", func() { r.pass(in) }); err != nil {
				panic(err)
			}
		})
	}
}

// pass copies in both directions until either side ends.
func (r *Relay) pass(in net.Conn) {
	defer in.Close()
	out, err := tls.Dial("tcp", r.to, r.config)
	if err != nil {
		return
	}
	defer out.Close()
	r.mu.Lock()
	r.open[in], r.open[out] = struct{}{}, struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, in)
		delete(r.open, out)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	both.Wait()
}

// Stop ends all connections.
func (r *Relay) Stop() {
	_ = r.listener.Close()
	r.mu.Lock()
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.serving.Wait()
}
