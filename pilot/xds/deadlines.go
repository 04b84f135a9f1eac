package xds

import "time"

// deadline is something that a stream which starts, resumes or leaves waits for no longer than until some time.
type deadline int

const (
	workloadKnown deadline = iota // until then the first answer waits for a snapshot that knows the workload
	warm                          // until then an Envoy warms its clusters
	resumed                       // until then a client that resumes keeps clusters that are gone
	departed                      // until then a proxy whose workload has gone keeps its inbound half
	credential                    // until then the peer's proof of its identity is good
	allDeadlines
)

// deadlines are when a stream stops to wait for what. The zero time: it does not wait for that.
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
