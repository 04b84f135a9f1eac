package xds

import (
	"context"
	"errors"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Connections is notified of streams and of the health that proxies report. It is notified of the end of each stream
// that it accepted, and of no other.
type Connections interface {
	// Connected is called once for a stream, before its first response. It may block without delaying other streams,
	// but must return when ctx ends. An error, best a gRPC status, ends the stream.
	Connected(ctx context.Context, c Client) error

	// Disconnected is called when the stream has ended. It must not block.
	Disconnected(c Client)

	// Health is called between Connected and Disconnected, in the order of the reports. It must not block. The message
	// describes why an application is unhealthy.
	Health(c Client, healthy bool, message string)
}

// workloadWait bounds how long a stream waits for a snapshot that has its workload. The proxy of a new pod may connect
// before the pod is known here.
const workloadWait = time.Second

// client returns a description of the stream.
func (c *conn) client() Client {
	return Client{ID: c.id, Proxy: c.proxy, Address: c.remote, Peer: c.peer, Connected: c.connected, Delta: c.delta}
}

// introduce asks Connections to accept the stream.
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
			c.runCalls()
		}
	}
}

// leave notifies Connections of the end of the stream.
func (c *conn) leave() {
	c.leaveSecrets()
	if c.server.o.Connections != nil {
		c.server.o.Connections.Disconnected(c.client())
	}
}

// report handles a report of the application's health, and returns false for other requests. Reports have no response.
func (c *conn) report(r *wire.Request) bool {
	if r.TypeURL != healthType {
		return false
	}
	if c.server.o.Connections != nil {
		c.server.o.Connections.Health(c.client(), r.Detail == nil, r.Detail.GetMessage())
	}
	return true
}

// knowsWorkload reports whether a snapshot has the stream's workload, if it needs one.
func (c *conn) knowsWorkload() bool {
	return !c.profile.workload || c.server.o.World.WorkloadKnown(c.session.Snapshot(), c.proxy) ||
		c.takesKnown() // a snapshot may have come during introduce
}

// woken ends the wait for the workload if the newest snapshot has it.
func (c *conn) woken() {
	if c.deadlines.waits(workloadKnown) && c.takesKnown() {
		c.deadlines.clear(workloadKnown)
		c.server.metrics.workloadsFound.Inc()
		if c.waitsToBeLocated() {
			c.applyAccess()
		}
	}
}

// readWait is how long a stream waits for its workload after its cluster has been read, until a snapshot has the
// objects.
const readWait = 10 * time.Second

// waitsForCluster reports whether the proxy should go on waiting for its workload: it resumes, and its cluster has not
// been read or has been read recently.
func (c *conn) waitsForCluster() bool {
	if !c.session.Resumed() {
		return false
	}
	if c.server.o.World.ClusterPending(c.proxy) {
		c.clusterPendingAt = time.Now()
	}
	return time.Since(c.clusterPendingAt) < readWait
}

// takesKnown takes the newest snapshot, and reports whether it has the workload. Earlier snapshots can be skipped,
// because nothing has been sent yet.
func (c *conn) takesKnown() bool {
	p := c.takePush()
	if p == nil {
		return false
	}
	c.session.SetSnapshot(p.Snapshot)
	return c.server.o.World.WorkloadKnown(p.Snapshot, c.proxy)
}
