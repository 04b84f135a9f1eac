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

// Manager keeps the secrets: see package secrets.
type Manager interface {
	// Get returns a secret that is there, or an error; a subscriber is told when it is there.
	Get(name string) (*secrets.Secret, error)
	// Subscribe has fn called with the name of each secret that changes, until cancel is called.
	Subscribe(fn func(name string)) (cancel func())
	// Follow says which secrets are in use, until cancel is called.
	Follow(names []string) (cancel func())
}

// Options of a Server.
type Options struct {
	Path       string // of the socket
	Manager    Manager
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// maxNames bounds the names of one stream.
const maxNames = 1000

// Server is a secret discovery service.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer

	o        Options
	listener net.Listener
	grpc     *grpc.Server
	ended    chan struct{}
	rejected prometheus.Counter
}

// Serving reports whether some server accepts connections at a path.
func Serving(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// New listens. An error says why the socket cannot be made.
func New(o Options) (*Server, error) {
	if o.Path == "" || o.Manager == nil {
		return nil, errors.New("sds: neither a path nor secrets")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{
		o: o, ended: make(chan struct{}), grpc: grpc.NewServer(grpc.MaxConcurrentStreams(1000), grpc.MaxRecvMsgSize(1<<20)),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_sds_rejections_total", Help: "Secrets that Envoy has rejected."}),
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

// Listen returns a listener on a Unix socket that never has another mode than this, in the place of what was there.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of a socket: %w", err)
	}
	own, err := os.MkdirTemp(filepath.Dir(path), ".s") // nobody else may enter it; the path of a socket is short
	if err != nil {
		return nil, fmt.Errorf("make a socket beside %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(own) }()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(own, "s"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(filepath.Join(own, "s"), mode)
	if err == nil {
		err = os.Rename(filepath.Join(own, "s"), path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	return l, nil
}

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	safe.Go(s.o.Log, "sds", func() { failed <- s.grpc.Serve(s.listener) })
	select {
	case err := <-failed:
		return fmt.Errorf("serve secrets: %w", err)
	case <-ctx.Done():
		close(s.ended)
		s.grpc.Stop()
		_ = os.Remove(s.o.Path)
		return nil
	}
}

// StreamSecrets sends what one stream subscribes to, and again when it changes.
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
			return status.Error(codes.Unavailable, "the agent ends")
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

// client is one stream. Its handler owns it.
type client struct {
	s      *Server
	stream secretv3.SecretDiscoveryService_StreamSecretsServer
	names  []string
	nonce  int
	sent   map[string]*secrets.Secret
	// unfollow is for the names.
	unfollow func()
}

// request takes an acknowledgement, a rejection, or names to subscribe to. What answers an older
// response changes no subscription.
func (c *client) request(r *discoveryv3.DiscoveryRequest) error {
	if r.GetErrorDetail() != nil {
		c.s.rejected.Inc()
		c.s.o.Log.Warn("Envoy rejects secrets", "secrets", c.names, "err", r.GetErrorDetail().GetMessage())
	}
	switch {
	case r.GetTypeUrl() != "" && r.GetTypeUrl() != secretType:
		return status.Errorf(codes.InvalidArgument, "this server has secrets, not %s", r.GetTypeUrl())
	case len(r.GetResourceNames()) > maxNames:
		return status.Errorf(codes.ResourceExhausted, "%d secrets are the most for one stream", maxNames)
	case r.GetResponseNonce() != "" && r.GetResponseNonce() != strconv.Itoa(c.nonce):
		return nil // it answers an older response
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.GetResourceNames())))
	if slices.Equal(names, c.names) && r.GetResponseNonce() != "" {
		return nil
	}
	before := c.unfollow
	c.names, c.unfollow = names, c.s.o.Manager.Follow(names)
	before()
	return c.send(true)
}

// send sends what is there of the names. Without all, nothing is sent unless one of them has changed.
func (c *client) send(all bool) error {
	out := &discoveryv3.DiscoveryResponse{TypeUrl: secretType}
	for _, name := range c.names {
		s, err := c.s.o.Manager.Get(name)
		if err != nil {
			if all {
				c.s.o.Log.Info("a secret that Envoy asks for is not there yet", "secret", name, "err", err)
			}
			s = c.sent[name] // it has seen this one
		}
		if s == nil {
			continue
		}
		all = all || c.sent[name] != s
		c.sent[name] = s
		body, err := proto.Marshal(resource(s))
		if err != nil {
			return status.Errorf(codes.Internal, "encode secret %s", name)
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

// resource returns a secret as Envoy takes it.
func resource(s *secrets.Secret) *tlsv3.Secret {
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	if s.Key == nil {
		return &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.Roots)}}}
	}
	return &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(s.Chain), PrivateKey: inline(s.Key)}}}
}

// FetchSecrets is not served: Envoy opens streams.
func (s *Server) FetchSecrets(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "secrets are streamed")
}

// DeltaSecrets is not served.
func (s *Server) DeltaSecrets(secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	return status.Error(codes.Unimplemented, "secrets are streamed as the state of the world")
}
