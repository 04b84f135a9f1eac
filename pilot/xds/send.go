package xds

import (
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

var errSending = errors.New("sending failed") // a panic ended Send

// step makes the next response in the slot that the caller has taken, and starts to send it.
func (c *conn) step(slot chan struct{}) error {
	unacknowledged := c.session.Unacknowledged()
	r, err := c.translate(slot)
	c.settleVersions()
	switch {
	case err != nil:
		return err
	case r == nil:
		c.endPass()
		return nil
	}
	return c.send(r, unacknowledged)
}

// translate makes the next response, and returns the slot that the caller has taken. It returns nil if the client has
// all resources.
func (c *conn) translate(slot chan struct{}) (*wire.Response, error) {
	defer func() { <-slot; c.endTurn() }()
	start := time.Now()
	if !c.joined {
		if err := c.server.authorizeAccount(c.peer, c.proxy); err != nil {
			return nil, err
		}
		if !c.session.Start(c.session.Snapshot()) {
			return nil, status.Error(codes.Internal, "no configuration could be made for this proxy")
		}
		c.joined = true
		c.hadWorkload = !c.session.Cohort().UnknownWorkload
		c.begins()
		c.joinGroup()
	}
	if err := c.server.admission.admitCohort(c); err != nil {
		return nil, err
	}
	var r *wire.Response
	if c.session.Snapshot() != nil {
		r = c.session.Next()
	}
	if r == nil {
		group, server := c.unseen()
		p := c.takePush()
		if p == nil && c.session.Snapshot() == nil { // the stream was not woken for snapshots that change nothing for it
			newest := c.server.newest()
			if p = c.takePush(); p == nil && newest.Revision == c.session.Revision() {
				c.session.SetSnapshot(newest)
			} else if p == nil {
				// The group may not have checked the newest snapshot yet. The response must be from the same snapshot
				// as the client's other resources.
				p = c.server.newestPush()
			}
		}
		if p != nil {
			c.adopt(c.owes(p, group, server), start)
		}
		r = c.session.Next()
	}
	c.made = time.Since(start)
	return r, nil
}

func (c *conn) adopt(p *session.Push, now time.Time) {
	m := c.server.metrics
	m.queueTime.Observe(now.Sub(p.Queued).Seconds())
	for reason, n := range p.Triggers {
		m.trigger(reason, n)
	}
	c.pass = pass{received: p.Received}
	c.account.take(p)
	c.session.Adopt(p)
	c.begins()
	c.hadWorkload = c.hadWorkload || !c.session.Cohort().UnknownWorkload
	if c.waitsToBeLocated() || p.Snapshot.Shared != c.shared {
		c.applyAccess()
	}
	c.joinGroup()
	c.deadlines.keep(departed, c.session.Departing(), now.Add(c.server.o.Limits.Departure))
}

// endPass ends a pass: the client was sent all of it.
func (c *conn) endPass() {
	if c.pass.responses > 0 && !c.pass.received.IsZero() {
		c.server.metrics.convergence.Observe(time.Since(c.pass.received).Seconds())
	}
	c.pass = pass{}
	c.endFirst()
	c.session.ReleaseSnapshot()
	c.returning()
}

// room is the number of unacknowledged bytes that a stream takes without blocking. gRPC queues 64 KiB.
const room = 32 << 10

// send starts to send one response, and the watchdog. unacknowledged is the number of bytes in unacknowledged
// responses. If they are few, Send does not block and needs no goroutine. The watchdog covers a client that
// acknowledges responses without reading them.
func (c *conn) send(r *wire.Response, unacknowledged int) error {
	s, now := c.server, time.Now()
	c.sending = r
	c.pass.responses++
	if st := c.session.StatusOf(r.TypeURL); st != nil {
		st.SentAt = now
	}
	c.countSent(r, now)
	c.countFirst(r)
	c.mu.Lock()
	c.sendingType, c.sendStarted = r.TypeURL, now
	c.mu.Unlock()
	c.watchdog.start()
	if unacknowledged == 0 || unacknowledged+r.Size() <= room {
		return c.delivered(c.stream.SendMsg(s.encoder.Encode(r)))
	}
	if !s.spawn("xds sender", func() {
		err := errSending
		defer func() { c.sent <- err }()
		err = c.stream.SendMsg(s.encoder.Encode(r))
	}) {
		return errShutdown()
	}
	return nil
}

// delivered handles the result of a Send.
func (c *conn) delivered(err error) error {
	c.watchdog.stop()
	c.mu.Lock()
	took := time.Since(c.sendStarted)
	c.sendingType = ""
	c.mu.Unlock()
	c.server.metrics.sent(c.sending, c.made, took, err)
	c.sending = nil
	if err != nil {
		select {
		case why := <-c.stop:
			return why
		default:
			return err
		}
	}
	if !c.session.Pending() {
		c.endPass()
	}
	return nil
}

// cut closes the connection of a client that does not read, which ends its Send.
func (c *conn) cut(log *slog.Logger) {
	c.mu.Lock()
	typeURL, took := c.sendingType, time.Since(c.sendStarted)
	c.mu.Unlock()
	if typeURL == "" {
		return
	}
	s := c.server
	s.metrics.writeTimeouts.Inc()
	c.end(status.Error(codes.Unavailable, "the client does not read"))
	closed := c.accepted.cut()
	log.Warn(
		"closing a connection: the proxy does not read", "type", envoy.ShortType(typeURL), "dur", took.Round(time.Millisecond), "closed",
		closed,
	)
}
