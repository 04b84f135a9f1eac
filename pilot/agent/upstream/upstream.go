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
	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
)

// System in place of a file of roots means the roots of the operating system.
const System = "SYSTEM"

// Options configure an Upstream.
type Options struct {
	Address string // HOST:PORT
	// Plaintext connects without TLS, as to port 15010. The token is then sent in clear text, so the network must be
	// trusted.
	Plaintext bool
	// ServerName is the DNS name that the server's certificate must have. The default is the host of Address.
	ServerName string
	Roots      string // PEM file of CA certificates, or System
	// Certificate and Key are PEM files of a client certificate. They may be missing. No certificate is shown then.
	Certificate, Key string
	// Token is a file with a bearer token. If it is empty, no token is sent.
	Token   string
	Headers map[string]string // sent with each call
	// Compliance limits TLS.
	Compliance compliance.Policy
	// Poll is the time between two reads of the file of roots. The default is one second.
	Poll time.Duration
	Log  *slog.Logger
}

// Limits of files and messages, in bytes.
const (
	maxFile    = 1 << 20
	maxMessage = 256 << 20 // the complete state of the largest mesh
)

// Upstream is a server and the connection to it. It is safe for concurrent use.
type Upstream struct {
	o Options

	mu    sync.Mutex
	conn  *grpc.ClientConn
	roots [sha256.Size]byte // hash of the file of roots that conn was made with
}

// New returns an Upstream, which connects on the first call. The error names the option that is wrong.
func New(o Options) (*Upstream, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil || host == "" {
		return nil, fmt.Errorf("address %q of the control plane: write HOST:PORT, for example istiod.istio-system.svc:15012", o.Address)
	}
	if !o.Plaintext && o.Roots == "" {
		return nil, fmt.Errorf("there are no roots to verify the control plane at %s: name a PEM file, or %s", o.Address, System)
	}
	if (o.Certificate == "") != (o.Key == "") {
		return nil, errors.New("a client certificate and its key must be set together")
	}
	o.ServerName, o.Poll = cmp.Or(o.ServerName, host), cmp.Or(o.Poll, time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	u := &Upstream{o: o}
	if text, err := ReadFile(o.Roots); err == nil {
		u.roots = sha256.Sum256(text)
	}
	u.conn, err = u.dial()
	return u, err
}

// Address returns the HOST:PORT of the server.
func (u *Upstream) Address() string { return u.o.Address }

// Conn returns the connection. When the roots change it is closed and its calls fail. Conn then returns a new
// connection.
func (u *Upstream) Conn() *grpc.ClientConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn
}

// Context returns a context that adds Options.Headers to calls.
func (u *Upstream) Context(ctx context.Context) context.Context {
	for name, value := range u.o.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// Run watches the file of roots until ctx ends, and then closes the connection.
func (u *Upstream) Run(ctx context.Context) error {
	for w := watchfile.New(watchfile.Options{Poll: u.o.Poll, NoWatch: true}); w.Next(ctx, 0); {
		u.follow()
	}
	return u.Conn().Close()
}

// follow replaces the connection if the roots have changed. It ignores a file that cannot be read or parsed.
func (u *Upstream) follow() {
	if u.o.Plaintext || u.o.Roots == System {
		return
	}
	text, err := ReadFile(u.o.Roots)
	sum := sha256.Sum256(text)
	if err != nil || sum == u.roots || armor.AddRoots(x509.NewCertPool(), text) != nil {
		return
	}
	next, err := u.dial()
	if err != nil {
		u.o.Log.Error("failed to connect with the new roots", "err", err)
		return
	}
	u.mu.Lock()
	previous := u.conn
	u.conn, u.roots = next, sum
	u.mu.Unlock()
	u.o.Log.Info("reconnecting with the new roots", "server", u.o.Address)
	_ = previous.Close()
}

// dial returns a connection that is established on its first use.
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
		return nil, fmt.Errorf("failed to connect to %s: %w", u.o.Address, err)
	}
	return conn, nil
}

// bearer reads the token for each call, because kubelets replace it before it expires.
type bearer struct{ o *Options }

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return !b.o.Plaintext }

// GetRequestMetadata implements credentials.PerRPCCredentials. A missing token is no error if there is a client
// certificate.
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
		return nil, status.Errorf(codes.Unauthenticated, "failed to read the token %s: %v", b.o.Token, err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// perHandshake reads the roots and the certificate for each handshake and delegates to TLS credentials made from
// them.
type perHandshake struct {
	o *Options
	// lastRoots is the last pool of roots without a parse error, or nil.
	lastRoots *atomic.Pointer[x509.CertPool]
}

// ClientHandshake implements credentials.TransportCredentials.
func (p *perHandshake) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := &tls.Config{ServerName: p.o.ServerName, MinVersion: tls.VersionTLS12}
	if p.o.Roots != System {
		text, err := ReadFile(p.o.Roots)
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read the roots of the control plane: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if err := armor.AddRoots(config.RootCAs, text); err == nil {
			p.lastRoots.Store(config.RootCAs)
		} else if config.RootCAs = p.lastRoots.Load(); config.RootCAs == nil {
			return nil, nil, fmt.Errorf("failed to read the roots of the control plane: %s: %w", p.o.Roots, err)
		} else {
			p.o.Log.Error("failed to read the roots of the control plane: the last ones stay in use", "file", p.o.Roots, "err", err)
		}
	}
	if certificate := clientCertificate(p.o); certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	return credentials.NewTLS(p.o.Compliance.Limit(config)).ClientHandshake(ctx, p.o.ServerName, conn)
}

// clientCertificate returns the client certificate, or nil if there is no valid one.
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
	certificate, err := armor.KeyPair(chain, key)
	if err != nil || time.Now().After(certificate.Leaf.NotAfter) {
		return nil
	}
	return &certificate
}

// ServerHandshake implements credentials.TransportCredentials.
func (p *perHandshake) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("an agent accepts no connections")
}

// Info implements credentials.TransportCredentials.
func (p *perHandshake) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: p.o.ServerName, MinVersion: tls.VersionTLS12}).Info()
}

// Clone implements credentials.TransportCredentials.
func (p *perHandshake) Clone() credentials.TransportCredentials { c := *p; return &c }

// OverrideServerName implements credentials.TransportCredentials. It returns an error, because the name is an option.
func (p *perHandshake) OverrideServerName(string) error {
	return errors.New("the server's name is fixed")
}

// ReadFile returns the content of a file. It fails if the file is larger than 1 MiB, because certificates, keys and
// tokens are smaller.
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
