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
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// DebugType begins the types by which tools such as istioctl ask for debug pages.
const DebugType = names.DebugType

// debugNonce is that of every answer to a tool.
const debugNonce = "debug"

// debugTime bounds the stream of a tool.
const debugTime = 5 * time.Minute

// asksForDebug reports whether a request comes from a tool that waits for a debug page. A proxy may ask for any other
// type that nobody serves: it gets no answer, and all else.
func asksForDebug(r *wire.Request) bool { return strings.HasPrefix(r.TypeURL, DebugType) }

// serveDebug answers the requests of a tool until it leaves. It is no proxy: its node says nothing, and it is in no
// list of connected clients.
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
			return status.Error(codes.DeadlineExceeded, "a stream for debug pages has its time")
		case <-s.closing:
			return errShutdown()
		}
	}
}

// answerDebug answers a request. last is the nonce of the answer before, or empty: a request that has it acknowledges
// that answer. istioctl puts a nonce of its own into the first one. It returns the nonce of the last answer.
func (c *conn) answerDebug(r *wire.Request, last string) (nonce string, err error) {
	s := c.server
	s.metrics.request(r.Size)
	switch {
	case r.Fault != nil:
		return last, status.Error(codes.InvalidArgument, r.Fault.Error())
	case !asksForDebug(r):
		return last, status.Errorf(codes.InvalidArgument, "this stream is for debug pages: %s needs another", envoy.ShortType(r.TypeURL))
	case last != "" && r.Nonce == last:
		return last, nil // it acknowledges the answer
	}
	if s.o.Authenticate != nil && c.peer.Proved() { // the proof may have been revoked since
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
	watchdog := time.AfterFunc(s.o.Limits.SendGrace+time.Duration(float64(proto.Size(m))/float64(s.o.Limits.SendRate)*float64(time.Second)), func() {
		safe.Run(s.o.Logger, "xds watchdog", func() {
			s.metrics.writeTimeouts.Inc()
			s.listeners.cut(c.remote, c.local)
		})
	})
	defer watchdog.Stop()
	return debugNonce, c.stream.SendMsg(m)
}

// beginDebug waits until an answer may be made, until done is called. The error is a gRPC status: the answers before
// have not been read in time.
func (c *conn) beginDebug() (done func(), err error) {
	holder, _ := c.peer.Holder()
	ctx, cancel := context.WithTimeout(c.stream.Context(), c.server.o.Limits.DebugWait)
	defer cancel()
	if done, err = c.server.debugging.Take(ctx, holder); err != nil {
		return nil, status.Error(codes.ResourceExhausted, "earlier debug pages have not been read yet")
	}
	return done, nil
}

// debugResponse returns a response without a nonce that matters: nobody is sent a page again.
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
