package sds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/agent/secrets"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// Manager provides the secrets. A secrets.Manager implements it.
type Manager interface {
	// Get returns a secret, or an error if it is unavailable. Subscribers are notified when it becomes available.
	Get(name string) (*secrets.Secret, error)
	// Subscribe calls fn with the name of each secret that changes, until cancel is called.
	Subscribe(fn func(name string)) (cancel func())
	// Follow declares secrets to be in use until cancel is called.
	Follow(names []string) (cancel func())
}

// Options configure a Server.
type Options struct {
	Path       string // of the socket
	Manager    Manager
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// maxNames is the maximum number of secrets of one stream.
const maxNames = 1000

// Server implements the secret discovery service.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer

	o        Options
	listener net.Listener
	grpc     *grpc.Server
	ended    chan struct{}
	rejected prometheus.Counter
}

// Serving reports whether a server accepts connections on a Unix socket.
func Serving(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second) //nolint:noctx // it takes at most a second
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// New returns a Server that listens. The error says why the socket cannot be made.
func New(o Options) (*Server, error) {
	if o.Path == "" || o.Manager == nil {
		return nil, errors.New("sds: Options.Path or Options.Manager is missing")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{
		o: o, ended: make(chan struct{}), grpc: grpc.NewServer(grpc.MaxConcurrentStreams(1000), grpc.MaxRecvMsgSize(1<<20)),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "istio_agent_sds_rejections_total", Help: "Responses with secrets that Envoy rejected.",
		}),
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(s.rejected); err != nil {
			return nil, err
		}
	}
	var err error
	if s.listener, err = Listen(o.Path, 0o600); err != nil {
		return nil, err
	}
	secretv3.RegisterSecretDiscoveryServiceServer(s.grpc, s)
	return s, nil
}

// Listen replaces a Unix socket by a new one and listens on it. The socket never has another mode than the given one.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("failed to make the folder of a socket: %w", err)
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s") // only this user may enter it
	if err != nil {
		return nil, fmt.Errorf("failed to make a temporary folder for the socket %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(private) }()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(private, "s"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("failed to listen for %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(filepath.Join(private, "s"), mode)
	if err == nil {
		err = os.Rename(filepath.Join(private, "s"), path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("failed to make the socket %s: %w", path, err)
	}
	return l, nil
}

// Run serves until ctx ends, and then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	safe.Go(s.o.Log, "sds", func() { failed <- s.grpc.Serve(s.listener) })
	select {
	case err := <-failed:
		return fmt.Errorf("failed to serve secrets: %w", err)
	case <-ctx.Done():
		close(s.ended)
		s.grpc.Stop()
		_ = os.Remove(s.o.Path)
		return nil
	}
}

// StreamSecrets implements the secret discovery service. It sends the requested secrets, and sends them again when
// they change.
func (s *Server) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) (err error) {
	if panicked := safe.Do("sds stream", func() { err = s.stream(stream) }); panicked != nil {
		s.o.Log.Error("recovered from a panic", "err", panicked)
		return status.Error(codes.Internal, "internal error")
	}
	return err
}

func (s *Server) stream(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	ctx := stream.Context()
	requests, failed := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	safe.Go(s.o.Log, "sds requests", func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	c := client{s: s, stream: stream, sent: map[string]*secrets.Secret{}, unfollow: func() {}}
	defer func() { c.unfollow() }()
	changed := make(chan struct{}, 1)
	defer s.o.Manager.Subscribe(func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for {
		var err error
		select {
		case <-s.ended:
			return status.Error(codes.Unavailable, "the agent is shutting down")
		case err = <-failed:
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		case r := <-requests:
			err = c.request(r)
		case <-changed:
			err = c.send(false)
		}
		if err != nil {
			return err
		}
	}
}

// client is the state of one stream, owned by its handler.
type client struct {
	s      *Server
	stream secretv3.SecretDiscoveryService_StreamSecretsServer
	names  []string
	nonce  int
	sent   map[string]*secrets.Secret
	// unfollow ends Follow of names.
	unfollow func()
}

// request handles an acknowledgement, a rejection, or a new list of names. A request that answers an older response
// changes no subscription.
func (c *client) request(r *discoveryv3.DiscoveryRequest) error {
	if r.GetErrorDetail() != nil {
		c.s.rejected.Inc()
		c.s.o.Log.Warn("Envoy rejected secrets", "secrets", c.names, "err", r.GetErrorDetail().GetMessage())
	}
	switch {
	case r.GetTypeUrl() != "" && r.GetTypeUrl() != secretType:
		return status.Errorf(codes.InvalidArgument, "this server serves only secrets, not %s", r.GetTypeUrl())
	case len(r.GetResourceNames()) > maxNames:
		return status.Errorf(codes.ResourceExhausted, "a stream may request at most %d secrets", maxNames)
	case r.GetResponseNonce() != "" && r.GetResponseNonce() != strconv.Itoa(c.nonce):
		return nil // it answers an older response
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.GetResourceNames())))
	if slices.Equal(names, c.names) && r.GetResponseNonce() != "" {
		return nil
	}
	previous := c.unfollow
	c.names, c.unfollow = names, c.s.o.Manager.Follow(names)
	previous()
	return c.send(true)
}

// send sends the available secrets. Unless all is set, it sends nothing if none of them has changed.
func (c *client) send(all bool) error {
	out := &discoveryv3.DiscoveryResponse{TypeUrl: secretType}
	for _, name := range c.names {
		s, err := c.s.o.Manager.Get(name)
		if err != nil {
			if all {
				c.s.o.Log.Info("a secret that Envoy requests is not available yet", "secret", name, "err", err)
			}
			s = c.sent[name] // the client has this one already
		}
		if s == nil {
			continue
		}
		all = all || c.sent[name] != s
		c.sent[name] = s
		body, err := proto.Marshal(resource(s))
		if err != nil {
			return status.Errorf(codes.Internal, "failed to encode secret %s", name)
		}
		out.Resources = append(out.Resources, &anypb.Any{TypeUrl: secretType, Value: body})
	}
	if !all || len(out.Resources) == 0 {
		return nil
	}
	c.nonce++
	out.Nonce = strconv.Itoa(c.nonce)
	out.VersionInfo = out.Nonce
	return c.stream.Send(out)
}

// resource returns the Envoy message of a secret.
func resource(s *secrets.Secret) *tlsv3.Secret {
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	if s.Key == nil {
		validation := &tlsv3.CertificateValidationContext{TrustedCa: inline(s.Roots)}
		return &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: validation}}
	}
	certificate := &tlsv3.TlsCertificate{CertificateChain: inline(s.Chain), PrivateKey: inline(s.Key)}
	return &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: certificate}}
}

// FetchSecrets returns Unimplemented, because Envoy opens streams.
func (s *Server) FetchSecrets(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "use StreamSecrets")
}

// DeltaSecrets returns Unimplemented.
func (s *Server) DeltaSecrets(secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return status.Error(codes.Unimplemented, "use StreamSecrets")
}
