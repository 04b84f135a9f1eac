package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

var (
	errSilent  = errors.New("it does not answer")
	errBlocked = errors.New("it does not read what it is sent")
	errEnded   = errors.New("it ended the stream")
)

// stream is one ADS stream.
type stream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	cancel  context.CancelCauseFunc
	timeout time.Duration
}

// send ends the stream if the server does not read in time. The receiver returns the reason why the stream has ended.
func (s *stream) send(r *discoveryv3.DiscoveryRequest) error {
	timer := time.AfterFunc(s.timeout, func() { s.cancel(errBlocked) })
	defer timer.Stop()
	if err := s.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// received is the result of one Recv.
type received struct {
	response *discoveryv3.DiscoveryResponse
	err      error
}

// follow opens a stream, requests every kind, and handles responses until the stream ends. It returns the reason.
func (s *Source) follow(ctx context.Context) (err error) {
	conn, err := s.dialer.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
	}()
	opening := time.AfterFunc(s.opts.Limits.ConfigAnswer, func() { cancel(errSilent) })
	client, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	opening.Stop()
	if err != nil {
		return s.explain(err)
	}
	st := &stream{client, cancel, s.opts.Limits.ConfigAnswer}
	answers := make(chan received)
	safe.Go(s.opts.Logger, "mcp receiver", func() {
		defer close(answers)
		for {
			r, err := st.Recv()
			select {
			case answers <- received{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	n := s.opts.Node.proto()
	for _, w := range s.types {
		if err := st.send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: w.url}); err != nil {
			return s.explain(err)
		}
		n = nil // the server reads it once
	}
	s.metrics.streams.Inc()
	late := time.NewTimer(s.opts.Limits.ConfigAnswer)
	defer late.Stop()
	for {
		select {
		case a, ok := <-answers:
			switch {
			case !ok:
				return errEnded
			case a.err != nil:
				return s.explain(a.err)
			}
			if err := s.take(st, a.response); err != nil {
				return s.explain(err)
			}
		case <-late.C:
			missing := s.unanswered()
			if len(missing) == len(s.types) {
				return errSilent
			}
			if len(missing) > 0 {
				s.setServerError("the server does not answer for "+strings.Join(missing, ", "), "what was read of them before stays in force")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take handles one response, and acknowledges or rejects it.
func (s *Source) take(st *stream, r *discoveryv3.DiscoveryResponse) error {
	var w *watched
	for _, t := range s.types {
		if t.url == r.GetTypeUrl() {
			w = t
		}
	}
	if w == nil {
		s.opts.Logger.Debug("ignoring a response of a type that was not requested", "type", r.GetTypeUrl())
		return nil
	}
	reply := &discoveryv3.DiscoveryRequest{TypeUrl: w.url, ResponseNonce: r.GetNonce()}
	changes, emptied, err := w.take(s.opts.Limits, r.GetResources())
	if err != nil {
		s.metrics.rejected.Inc()
		reply.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
	} else {
		s.metrics.accepted.Inc()
		w.version, w.known = r.GetVersionInfo(), true
	}
	if emptied {
		s.metrics.emptied.Inc()
		s.opts.Logger.Warn(
			"removing all objects of a kind: the server answered without any on a new stream", "kind", w.kind.Name, "objects", len(changes),
		)
	}
	w.answered = true
	reply.VersionInfo = w.version
	if s.whole() {
		s.serverError = nil
		s.metrics.connected.Set(1)
	}
	s.report()
	s.hand(changes)
	return st.send(reply)
}

// explain returns an error of gRPC with a clear message for operators.
func (s *Source) explain(err error) error {
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"):
		return fmt.Errorf("a response is larger than %d bytes", s.opts.Limits.ConfigResponse)
	case st.Code() == codes.Unimplemented:
		return errors.New("it offers no aggregated discovery service")
	case st.Code() == codes.Unavailable: // the message is clear by itself
		return errors.New(st.Message())
	}
	return fmt.Errorf("%v: %s", st.Code(), st.Message())
}

// proto returns the node of a control plane that requests objects.
func (n Node) proto() *corev3.Node {
	ns, ip := cmp.Or(n.Namespace, "istio-system"), cmp.Or(n.IP, "127.0.0.1")
	if net.ParseIP(ip) == nil {
		ip = "127.0.0.1"
	}
	fields := map[string]*structpb.Value{}
	for key, value := range map[string]string{"GENERATOR": "api", "NAMESPACE": ns, "ISTIO_VERSION": n.Version, "ISTIO_REVISION": n.Revision} {
		if value != "" {
			fields[key] = structpb.NewStringValue(value)
		}
	}
	return &corev3.Node{
		Id:       "sidecar~" + ip + "~" + cmp.Or(n.Name, "istiod") + "." + ns + "~" + ns + ".svc." + cmp.Or(n.Domain, "cluster.local"),
		Metadata: &structpb.Struct{Fields: fields},
	}
}
