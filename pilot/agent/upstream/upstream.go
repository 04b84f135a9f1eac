package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
)

// System in the place of a file of roots means those of the operating system.
const System = "SYSTEM"

// Options of an Upstream.
type Options struct {
	Address string // HOST:PORT
	// Plaintext connects without TLS, as to port 15010. The token is then sent in the clear: the network must be
	// trusted.
	Plaintext  bool
	ServerName string // that the server's certificate must have; empty: the host of Address
	Roots      string // a PEM file of CA certificates, or System
	// Certificate and Key are PEM files of a client certificate. They may be missing: then none is shown.
	Certificate, Key string
	Token            string            // a file with a bearer token; empty: none is sent
	Headers          map[string]string // sent with each call
	Poll             time.Duration     // between two looks at the file of roots; 0: a second
	Log              *slog.Logger
}

// Bounds of what is read and received.
const (
	maxFile    = 1 << 20
	maxMessage = 256 << 20 // a whole state of the largest mesh
)

// Upstream is a server, and the connection to it. It is safe for concurrent use.
type Upstream struct {
	o Options

	mu    sync.Mutex
	conn  *grpc.ClientConn
	roots [sha256.Size]byte // of the file that conn was made with
}

// New returns an Upstream. It connects when the first call is made. An error names the option that is wrong.
func New(o Options) (*Upstream, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil || host == "" {
		return nil, fmt.Errorf("address %q of the control plane: write HOST:PORT, for example istiod.istio-system.svc:15012", o.Address)
	}
	if !o.Plaintext && o.Roots == "" {
		return nil, fmt.Errorf("no roots to trust the control plane at %s by: name a PEM file, or %s", o.Address, System)
	}
	if (o.Certificate == "") != (o.Key == "") {
		return nil, errors.New("a client certificate needs a key, and a key a certificate")
	}
	o.ServerName, o.Poll, o.Log = cmp.Or(o.ServerName, host), cmp.Or(o.Poll, time.Second), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	u := &Upstream{o: o}
	if text, err := ReadFile(o.Roots); err == nil {
		u.roots = sha256.Sum256(text)
	}
	u.conn, err = u.dial()
	return u, err
}

// Address returns HOST:PORT of the server.
func (u *Upstream) Address() string { return u.o.Address }

// Conn returns the connection. It may be closed at any time, when roots change; its calls then fail, and Conn returns
// another one.
func (u *Upstream) Conn() *grpc.ClientConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn
}

// Context returns a context whose calls have the headers.
func (u *Upstream) Context(ctx context.Context) context.Context {
	for name, value := range u.o.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// Run follows the file of roots until ctx ends, then closes the connection.
func (u *Upstream) Run(ctx context.Context) error {
	for w := watchfile.New(watchfile.Options{Poll: u.o.Poll, NoWatch: true}); w.Next(ctx, 0); {
		u.follow()
	}
	return u.Conn().Close()
}

// follow replaces the connection when the roots have changed. A file that cannot be read leaves it as it is.
func (u *Upstream) follow() {
	if u.o.Plaintext || u.o.Roots == System {
		return
	}
	text, err := ReadFile(u.o.Roots)
	now := sha256.Sum256(text)
	if err != nil || now == u.roots || armor.AddRoots(x509.NewCertPool(), text) != nil {
		return
	}
	next, err := u.dial()
	if err != nil {
		u.o.Log.Error("cannot connect with the new roots", "err", err)
		return
	}
	u.mu.Lock()
	last := u.conn
	u.conn, u.roots = next, now
	u.mu.Unlock()
	u.o.Log.Info("the roots have changed: connecting again", "server", u.o.Address)
	_ = last.Close()
}

// dial returns a connection that is made when it is needed.
func (u *Upstream) dial() (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if !u.o.Plaintext {
		transport = &perHandshake{&u.o, &atomic.Pointer[x509.CertPool]{}}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 10 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if u.o.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{&u.o}))
	}
	conn, err := grpc.NewClient("dns:///"+u.o.Address, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", u.o.Address, err)
	}
	return conn, nil
}

// bearer reads the token for each call, for kubelets replace it before it expires.
type bearer struct{ o *Options }

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return !b.o.Plaintext }

// GetRequestMetadata implements credentials.PerRPCCredentials. A caller with a certificate needs no token.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := ReadFile(b.o.Token)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		if clientCertificate(b.o) != nil {
			return nil, nil
		}
		return nil, status.Errorf(codes.Unauthenticated, "no token: %s: %v", b.o.Token, err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// perHandshake reads roots and certificate for each handshake, and leaves the rest to TLS credentials made of them.
type perHandshake struct {
	o    *Options
	last *atomic.Pointer[x509.CertPool] // the last roots that could be used; nil before the first
}

// ClientHandshake implements credentials.TransportCredentials.
func (p *perHandshake) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := &tls.Config{ServerName: p.o.ServerName, MinVersion: tls.VersionTLS12}
	if p.o.Roots != System {
		text, err := ReadFile(p.o.Roots)
		if err != nil {
			return nil, nil, fmt.Errorf("roots of the control plane: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if err := armor.AddRoots(config.RootCAs, text); err == nil {
			p.last.Store(config.RootCAs)
		} else if config.RootCAs = p.last.Load(); config.RootCAs == nil {
			return nil, nil, fmt.Errorf("roots of the control plane: %s: %w", p.o.Roots, err)
		} else {
			p.o.Log.Error("failed to read the roots of the control plane: the last ones stay in use", "file", p.o.Roots, "err", err)
		}
	}
	if own := clientCertificate(p.o); own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, p.o.ServerName, conn)
}

// clientCertificate returns the certificate that is shown now, or nil.
func clientCertificate(o *Options) *tls.Certificate {
	if o.Certificate == "" || o.Plaintext {
		return nil
	}
	chain, err := ReadFile(o.Certificate)
	if err != nil {
		return nil
	}
	key, err := ReadFile(o.Key)
	if err != nil {
		return nil
	}
	own, err := armor.KeyPair(chain, key)
	if err != nil || time.Now().After(own.Leaf.NotAfter) {
		return nil
	}
	return &own
}

// ServerHandshake implements credentials.TransportCredentials.
func (p *perHandshake) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the agent is a client only")
}

// Info implements credentials.TransportCredentials.
func (p *perHandshake) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: p.o.ServerName, MinVersion: tls.VersionTLS12}).Info()
}

// Clone implements credentials.TransportCredentials.
func (p *perHandshake) Clone() credentials.TransportCredentials { c := *p; return &c }

// OverrideServerName implements credentials.TransportCredentials: the name is an option.
func (p *perHandshake) OverrideServerName(string) error {
	return errors.New("the server's name is fixed")
}

// ReadFile returns a file of at most 1 MiB: certificates, keys and tokens are smaller.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return text, nil
}
