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

// proofTime bounds how long a stream goes on after its peer's proof was revoked: the proof is judged again that often.
const proofTime = time.Minute

// judgeTime bounds one such judgement.
const judgeTime = 10 * time.Second

// keepProof has the proof of the peer's identity judged again in a while, not at the same time as those of others.
func (c *conn) keepProof() {
	if c.server.o.Authenticate == nil || !c.peer.Proved() {
		return
	}
	all := c.server.o.ProofTime
	c.deadlines.set(proof, time.Now().Add(all/2+rand.N(all/2)))
}

// judgeAgain judges what the peer presented when it opened the stream, beside the owner. The stream ends if a new one
// would be refused, or would have other rights. It goes on while nobody can judge: then what was found last counts.
func (c *conn) judgeAgain() {
	c.server.spawn("xds authentication", func() {
		ctx, cancel := context.WithTimeout(c.stream.Context(), judgeTime)
		defer cancel()
		now, err := c.server.o.Authenticate(ctx)
		switch {
		case status.Code(err) == codes.Unauthenticated:
			err = status.Error(codes.Unauthenticated, "the proof of the caller's identity is not accepted any more")
		case err == nil && !sameRights(now, c.peer):
			err = errOtherPeer()
		default:
			err = c.server.authorizeAccount(c.peer, c.proxy)
		}
		if err != nil {
			c.end(err)
			return
		}
		c.put(func(*session.Session) { c.keepProof() })
	})
}

// sameRights reports whether what a peer presented proves the same of it as before. The node that its pod runs on is
// not always known, and is nothing that a stream depends on.
func sameRights(now, before identity.Peer) bool {
	now.Bound.Node = before.Bound.Node
	return now.ID == before.ID && now.Federated == before.Federated && now.Bound == before.Bound
}

func errOtherPeer() error {
	return status.Error(codes.Unauthenticated, "the proof of the caller's identity is not good any more for what it was good for")
}
