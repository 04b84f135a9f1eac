package xds

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// reauthenticateTime is how often a peer is authenticated again. It bounds how long a stream lives after its credential
// was revoked.
const reauthenticateTime = time.Minute

// authenticateTimeout bounds one such authentication.
const authenticateTimeout = 10 * time.Second

// scheduleReauthentication sets the time of the next authentication of the peer, at random so that streams do not
// coincide.
func (c *conn) scheduleReauthentication() {
	if c.server.o.Authenticate == nil || !c.peer.Proved() {
		return
	}
	all := c.server.o.ProofTime
	c.deadlines.set(proof, time.Now().Add(all/2+rand.N(all/2)))
}

// reauthenticate authenticates the peer's credential again, in another goroutine. It ends the stream if a new stream
// would be refused, or would have other rights. If authentication is unavailable, the last result stays in force.
func (c *conn) reauthenticate() {
	c.server.spawn("xds authentication", func() {
		ctx, cancel := context.WithTimeout(c.stream.Context(), authenticateTimeout)
		defer cancel()
		now, err := c.server.o.Authenticate(ctx)
		switch {
		case status.Code(err) == codes.Unauthenticated:
			err = status.Error(codes.Unauthenticated, "the caller's credential is not accepted any more")
		case err == nil && !sameRights(now, c.peer):
			err = errOtherPeer()
		default:
			err = c.server.authorizeAccount(c.peer, c.proxy)
		}
		if err != nil {
			c.end(err)
			return
		}
		c.post(func(*session.Session) { c.scheduleReauthentication() })
	})
}

// sameRights reports whether a credential still proves the same identity and binding. It ignores the node of the pod,
// which is not always known and which no right depends on.
func sameRights(now, before identity.Peer) bool {
	now.Bound.Node = before.Bound.Node
	return now.ID == before.ID && now.Federated == before.Federated && now.Bound == before.Bound
}

func errOtherPeer() error {
	return status.Error(codes.Unauthenticated, "the caller's credential proves another identity than at the start of the stream")
}
