package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
)

// Options of a Server.
type Options struct {
	// Issuer issues certificates: a ca.CA, or a registration authority.
	Issuer interface {
		Issue(ctx context.Context, q ca.Request) (*ca.Issued, error)
	}
	// Authenticate returns the identity of the caller of a gRPC method.
	Authenticate func(ctx context.Context) (identity.Peer, error)
	// NodeAccounts may request certificates of the identities that run on their node.
	NodeAccounts []NodeAccount
	Workloads    Workloads
	TrustDomains authenticate.TrustDomains

	// AtOnce is how many certificates are signed at a time; 0 stands for a few for each core. If more callers wait,
	// they take turns, and each has at most quota.Share of them.
	AtOnce      int
	PerIdentity rate.Limit    // certificates a second for one identity, or for one of its pods; 0 is no limit
	Burst       int           // burst of PerIdentity
	Limits      limits.Limits // optional; the zero value stands for the default limits
	Registerer  prometheus.Registerer
	Log         *slog.Logger
}

// Server issues certificates over gRPC. It is safe for concurrent use.
type Server struct {
	o       Options
	metrics metrics
	signing *quota.Slots[identity.ID] // keyed by caller
	rates   *lru.Cache[requester, *rate.Limiter]
}

// New returns a Server.
func New(o Options) *Server {
	if o.Limits == (limits.Limits{}) {
		o.Limits = limits.Default()
	}
	rates, err := lru.New[requester, *rate.Limiter](o.Limits.Requesters)
	if err != nil {
		panic(err) // unreachable: limits are validated to be positive
	}
	atOnce := cmp.Or(o.AtOnce, o.Limits.Signings*runtime.GOMAXPROCS(0))
	return &Server{o: o, metrics: newMetrics(o.Registerer), rates: rates, signing: quota.NewSlots[identity.ID](atOnce, quota.Share(atOnce))}
}

// Register registers the service at a gRPC server. The method is registered as a stream of one message each way, which
// is the same on the wire. So the server authenticates callers before it receives a message, whatever its size.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	all := authv1.IstioCertificateService_ServiceDesc
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: all.ServiceName, HandlerType: (*any)(nil), Metadata: all.Metadata,
		Streams: []grpc.StreamDesc{{
			StreamName: all.Methods[0].MethodName, Handler: func(_ any, stream grpc.ServerStream) error { return s.serve(stream) },
		}},
	}, s)
}

// serve serves one call of CreateCertificate.
func (s *Server) serve(stream grpc.ServerStream) error {
	ctx, r := stream.Context(), &authv1.IstioCertificateRequest{}
	caller, err := s.authenticate(ctx)
	if err != nil {
		return err
	}
	if err := stream.RecvMsg(r); err != nil {
		return err
	}
	response, err := s.create(ctx, caller, r)
	if err != nil {
		return err
	}
	return stream.SendMsg(response)
}

// impersonated is the metadata key of the identity that a node's proxy requests instead of its own.
const impersonated = "ImpersonatedIdentity"

// certSigner is the metadata key of the signer to use, if signers of Kubernetes sign.
const certSigner = "CertSigner"

// authenticate returns the identity of the caller, or a gRPC status.
func (s *Server) authenticate(ctx context.Context) (identity.Peer, error) {
	s.metrics.requests.Inc()
	caller, err := s.o.Authenticate(ctx)
	if err == nil && caller.Proved() {
		return caller, nil
	}
	s.metrics.unauthenticated.Inc()
	s.o.Log.Debug("certificate refused: the caller could not be authenticated", "err", err)
	if errors.Is(err, authenticate.ErrUnavailable) {
		return caller, status.Error(codes.Unavailable, "request authenticate failure: try again")
	}
	return caller, status.Error(codes.Unauthenticated, "request authenticate failure")
}

// create returns a certificate for the key of a request.
func (s *Server) create(ctx context.Context, caller identity.Peer,
	r *authv1.IstioCertificateRequest) (*authv1.IstioCertificateResponse, error) {
	id, err := s.subject(caller, r)
	if err != nil {
		s.metrics.noIdentity.Inc()
		return nil, err
	}
	if !s.allow(caller, id) {
		return nil, s.failed(caller, "rate", status.Errorf(codes.ResourceExhausted, "%s asks for too many certificates", id))
	}
	ttl, err := lifetime(r.GetValidityDuration())
	if err != nil {
		return nil, s.failed(caller, "TTL", status.Error(codes.InvalidArgument, err.Error()))
	}
	leave, err := s.signing.Take(ctx, caller.ID)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer leave()
	signer := r.GetMetadata().GetFields()[certSigner].GetStringValue()
	out, err := s.o.Issuer.Issue(ctx, ca.Request{ID: id, CSR: []byte(r.GetCsr()), TTL: ttl, Signer: signer})
	switch {
	case errors.Is(err, ca.ErrUnavailable):
		return nil, s.failed(caller, "CA_NOT_READY", status.Error(codes.Unavailable, err.Error()))
	case errors.Is(err, ca.ErrInternal):
		return nil, s.failed(caller, "CERT_GEN_ERROR", status.Error(codes.Internal, ca.ErrInternal.Error()))
	case err != nil:
		s.metrics.unparsable.Inc()
		return nil, s.failed(caller, "CSR_ERROR", status.Error(codes.InvalidArgument, err.Error()))
	}
	if out.Extra {
		s.metrics.extra.Inc()
	}
	s.metrics.issued.Inc()
	s.o.Log.Debug("certificate issued", "identity", id.String(), "caller", caller.String(), "not_after", out.NotAfter)
	response := &authv1.IstioCertificateResponse{}
	for _, c := range out.Chain {
		response.CertChain = append(response.CertChain, string(c))
	}
	return response, nil
}

// failed counts and logs a failed request.
func (s *Server) failed(caller identity.Peer, reason string, err error) error {
	s.metrics.failed.WithLabelValues(reason).Inc()
	s.o.Log.Debug("certificate refused", "caller", caller.String(), "err", err)
	return err
}

// subject returns the identity to certify: the caller's own, or the one that it may impersonate.
func (s *Server) subject(caller identity.Peer, r *authv1.IstioCertificateRequest) (identity.ID, error) {
	if caller.Federated { // a certificate of this CA would be good for more than the one that it proved its identity by
		return caller.ID, status.Errorf(codes.PermissionDenied,
			"%s is not issued certificates: its root is trusted for aliases of the trust domain alone", caller)
	}
	v, ok := r.GetMetadata().GetFields()[impersonated]
	if !ok || v.GetStringValue() == "" {
		return caller.ID, s.renewable(caller)
	}
	id, err := identity.Parse(v.GetStringValue())
	if err != nil {
		return id, status.Error(codes.InvalidArgument, err.Error())
	}
	switch err := s.impersonate(caller, id); {
	case err == nil:
		return id, nil
	case errors.Is(err, authenticate.ErrUnavailable):
		return id, status.Error(codes.Unavailable, err.Error())
	default:
		s.o.Log.Warn("certificate refused: the caller may not impersonate", "caller", caller.String(), "identity", id.String(), "err", err)
	}
	return id, status.Errorf(codes.PermissionDenied, "%s may not have a certificate of %s", caller, id)
}

// requester is the unit of the rate limit: an identity, and for its own certificates also the pod that its token is
// bound to. Many pods of one service account start together, and one of them must not use up the limit of the others.
type requester struct {
	id     identity.ID
	podUID string
}

// allow reports whether the rate limit allows a caller another certificate of an identity now.
func (s *Server) allow(caller identity.Peer, id identity.ID) bool {
	if s.o.PerIdentity == 0 {
		return true
	}
	who := requester{id: id}
	if id == caller.ID {
		who.podUID = caller.Bound.PodUID
	}
	l, ok := s.rates.Get(who)
	if !ok {
		l = rate.NewLimiter(s.o.PerIdentity, s.o.Burst)
		if earlier, had, _ := s.rates.PeekOrAdd(who, l); had {
			l = earlier
		}
	}
	return l.Allow()
}

// lifetime returns a number of seconds as a duration. It is an error if it is negative or too large for one.
func lifetime(seconds int64) (time.Duration, error) {
	if seconds < 0 || seconds > math.MaxInt64/int64(time.Second) {
		return 0, fmt.Errorf("a certificate cannot be valid for %d seconds", seconds)
	}
	return time.Duration(seconds) * time.Second, nil
}
