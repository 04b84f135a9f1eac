package xds

import "time"

// deadline is a reason why a stream waits for a bounded time.
type deadline int

const (
	workloadKnown deadline = iota // the first response waits for a snapshot that has the workload
	warm                          // an Envoy warms its clusters
	resumed                       // a client that resumes keeps removed clusters
	departed                      // a proxy whose workload was deleted keeps its inbound configuration
	credential                    // the peer's credential expires, which ends the stream
	proof                         // the peer is authenticated again, because its credential may have been revoked
	placed                        // the stream gives back its place for a first configuration
	allDeadlines
)

// deadlines holds the time of each deadline, or the zero time if the stream does not wait.
type deadlines [allDeadlines]time.Time

func (d *deadlines) waits(x deadline) bool { return !d[x].IsZero() }

func (d *deadlines) set(x deadline, at time.Time) { d[x] = at }

func (d *deadlines) clear(x deadline) { d[x] = time.Time{} }

// keep sets a deadline if the stream waits and it is not set yet, and clears it if the stream does not wait.
func (d *deadlines) keep(x deadline, waits bool, at time.Time) {
	switch {
	case !waits:
		d.clear(x)
	case !d.waits(x):
		d.set(x, at)
	}
}

// next returns the earliest deadline, or the zero time.
func (d *deadlines) next() (first time.Time) {
	for _, at := range d {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// expire clears a deadline that has passed and returns it. It returns false if there is none.
func (d *deadlines) expire(now time.Time) (deadline, bool) {
	for x, at := range d {
		if !at.IsZero() && !now.Before(at) {
			d.clear(deadline(x))
			return deadline(x), true
		}
	}
	return 0, false
}
