package xds

import (
	"context"
	"errors"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Connections is notified of streams, and of what proxies report over them about their own health. It is notified of a
// stream's end if and only if it accepted the stream.
type Connections interface {
	// Connected is called once for a stream, before its first answer. It may take its time, which no other stream waits
	// for, but must return when ctx ends. An error, best one with a gRPC code, ends the stream.
	Connected(ctx context.Context, c Client) error

	// Disconnected is called when the stream has ended. It must not block.
	Disconnected(c Client)

	// Health is called between the two, in the order of the reports. It must not block. The message says what an
	// unhealthy application suffers from.
	Health(c Client, healthy bool, message string)
}

// workloadWait is the longest time for which a stream waits for a snapshot that knows its workload: the proxy of a new
// pod may come before the news of the pod.
const workloadWait = time.Second

// client is the stream as others see it.
func (c *conn) client() Client {
	return Client{ID: c.id, Proxy: c.proxy, Address: c.remote, Peer: c.peer, Connected: c.connected, Delta: c.delta}
}

// introduce asks Connections whether the stream may go on.
func (c *conn) introduce() error {
	s := c.server
	if s.o.Connections == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(c.stream.Context())
	defer cancel()
	answer := make(chan error, 1)
	if !s.spawn("xds connections", func() {
		err := errors.New("connecting failed")
		defer func() { answer <- err }()
		err = s.o.Connections.Connected(ctx, c.client())
	}) {
		return errShutdown()
	}
	var ended error
	for {
		select {
		case err := <-answer:
			if ended == nil {
				return err
			}
			if err == nil {
				s.o.Connections.Disconnected(c.client())
			}
			return ended
		case err := <-c.stop:
			ended = err
			cancel()
		case <-c.wake:
			c.answer()
		}
	}
}

// leave says that the stream has ended.
func (c *conn) leave() {
	c.leaveSecrets()
	if c.server.o.Connections != nil {
		c.server.o.Connections.Disconnected(c.client())
	}
}

// report takes a request that only says how the proxy's application is. It is not answered.
func (c *conn) report(r *wire.Request) bool {
	if r.TypeURL != healthType {
		return false
	}
	if c.server.o.Connections != nil {
		c.server.o.Connections.Health(c.client(), r.Detail == nil, r.Detail.GetMessage())
	}
	return true
}

// knowsWorkload reports whether a snapshot knows the stream's workload, if it has one.
func (c *conn) knowsWorkload() bool {
	return !c.profile.workload || c.server.o.World.WorkloadKnown(c.session.Snapshot(), c.proxy) ||
		c.takesKnown() // news may have come while it was introduced
}

// woken ends the wait for the workload if the newest snapshot knows it.
func (c *conn) woken() {
	if c.deadlines.waits(workloadKnown) && c.takesKnown() {
		c.deadlines.clear(workloadKnown)
		c.server.metrics.waits.Inc()
		if c.waitsToBeLocated() {
			c.applyAccess()
		}
	}
}

// readWait is how long a stream waits for its workload after its cluster has been read: what was read has to become a
// snapshot.
const readWait = 10 * time.Second

// waitsForCluster reports whether the proxy goes on waiting for its workload: it has what it was sent before, and its
// cluster is yet to be read, or has just been.
func (c *conn) waitsForCluster() bool {
	if !c.session.Resumed() {
		return false
	}
	if c.server.o.World.ClusterPending(c.proxy) {
		c.lateAt = time.Now()
	}
	return time.Since(c.lateAt) < readWait
}

// takesKnown takes the newest snapshot, and reports whether it knows the workload. Nothing was sent yet, so earlier
// snapshots need not be looked at.
func (c *conn) takesKnown() bool {
	p := c.takePush()
	if p == nil {
		return false
	}
	c.session.SetSnapshot(p.Snapshot)
	return c.server.o.World.WorkloadKnown(p.Snapshot, c.proxy)
}
