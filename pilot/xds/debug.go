package xds

import (
	"context"
	"errors"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// DebugType is the prefix of the types by which tools such as istioctl request debug pages.
const DebugType = names.DebugType

// debugNonce is the nonce of every response to a tool.
const debugNonce = "debug"

// debugTime bounds the duration of a tool's stream.
const debugTime = 5 * time.Minute

// asksForDebug reports whether a request is a tool's request for a debug page. A proxy may request other unknown types,
// which have no response.
func asksForDebug(r *wire.Request) bool { return strings.HasPrefix(r.TypeURL, DebugType) }

// serveDebug answers the requests of a tool until it leaves. A tool is no proxy: its node is ignored, and it is not a
// connected client.
func (c *conn) serveDebug(r *wire.Request) error {
	s := c.server
	end := time.Now().Add(debugTime)
	if !c.peer.Expires.IsZero() && c.peer.Expires.Before(end) {
		end = c.peer.Expires
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for last := ""; ; {
		nonce, err := c.answerDebug(r, last)
		if err != nil {
			return err
		}
		last = nonce
		select {
		case in := <-c.requests:
			if in.err != nil {
				return ending(in.err)
			}
			r = in.request
		case <-timer.C:
			return status.Error(codes.DeadlineExceeded, "a stream for debug pages ends after five minutes")
		case <-s.closing:
			return errShutdown()
		}
	}
}

// answerDebug answers a request and returns the nonce of the last response. last is the nonce of the previous response,
// or empty. A request with that nonce is an acknowledgement. istioctl puts a nonce of its own into its first request.
func (c *conn) answerDebug(r *wire.Request, last string) (nonce string, err error) {
	s := c.server
	s.metrics.request(r.Size)
	switch {
	case r.Fault != nil:
		return last, status.Error(codes.InvalidArgument, r.Fault.Error())
	case !asksForDebug(r):
		return last, status.Errorf(
			codes.InvalidArgument, "this stream is for debug pages: request %s on another stream", envoy.ShortType(r.TypeURL),
		)
	case last != "" && r.Nonce == last:
		return last, nil // an acknowledgement
	}
	if s.o.Authenticate != nil && c.peer.Proved() { // the credential may have been revoked since
		now, err := s.o.Authenticate(c.stream.Context())
		if err == nil && !sameRights(now, c.peer) {
			err = errOtherPeer()
		}
		if err != nil {
			return last, err
		}
	}
	var names []string
	if r.Names.Names != nil {
		names = r.Names.Names.All()
	}
	done, err := c.beginDebug()
	if err != nil {
		return last, err
	}
	defer done()
	pages, err := s.o.World.DebugPages(c.peer, r.TypeURL, names)
	var denied *authorize.Denied
	switch {
	case errors.As(err, &denied):
		return last, status.Error(codes.PermissionDenied, denied.Message)
	case err != nil:
		return last, err
	}
	m := c.debugResponse(r, pages)
	stalled := newWatchdog(c.accepted, s.o.Limits.SendGrace, s.o.Logger, func() {
		s.metrics.writeTimeouts.Inc()
		c.accepted.cut()
	})
	stalled.start()
	defer stalled.stop()
	return debugNonce, c.stream.SendMsg(m)
}

// beginDebug waits until a response may be made. The caller must call done afterwards. It fails with a gRPC status if
// earlier responses are not read in time.
func (c *conn) beginDebug() (done func(), err error) {
	holder, _ := c.peer.Holder()
	ctx, cancel := context.WithTimeout(c.stream.Context(), c.server.o.Limits.DebugWait)
	defer cancel()
	if done, err = c.server.debugging.Take(ctx, holder); err != nil {
		return nil, status.Error(codes.ResourceExhausted, "earlier debug pages have not been read yet")
	}
	return done, nil
}

// debugResponse returns a response. Its nonce is constant, because a page is never sent again.
func (c *conn) debugResponse(r *wire.Request, pages []*anypb.Any) proto.Message {
	by := &corev3.ControlPlane{Identifier: c.server.o.Identifier}
	if !c.delta {
		return &discoveryv3.DiscoveryResponse{TypeUrl: r.TypeURL, Resources: pages, ControlPlane: by, Nonce: debugNonce}
	}
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeURL, ControlPlane: by, Nonce: debugNonce}
	for _, p := range pages {
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: r.TypeURL, Resource: p})
	}
	return m
}
