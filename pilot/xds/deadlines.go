package xds

import "time"

// deadline names something that a stream waits for, but not for ever.
type deadline int

const (
	workloadKnown deadline = iota // the first answer waits for a snapshot that knows the workload
	warm                          // an Envoy warms its clusters
	resumed                       // a client that resumes keeps clusters that are gone
	departed                      // a proxy whose workload has gone keeps its inbound half
	credential                    // the stream ends when the peer's proof of its identity expires
	proof                         // the peer's proof is judged again: it may have been revoked
	allDeadlines
)

// deadlines holds the time of each deadline. It is zero where the stream does not wait.
type deadlines [allDeadlines]time.Time

func (d *deadlines) waits(x deadline) bool { return !d[x].IsZero() }

func (d *deadlines) set(x deadline, at time.Time) { d[x] = at }

func (d *deadlines) clear(x deadline) { d[x] = time.Time{} }

// keep sets a deadline unless there is one, if the stream waits, and else clears it.
func (d *deadlines) keep(x deadline, waits bool, at time.Time) {
	switch {
	case !waits:
		d.clear(x)
	case !d.waits(x):
		d.set(x, at)
	}
}

// next returns the first deadline, or the zero time.
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
