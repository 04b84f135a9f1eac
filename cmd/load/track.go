package load

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Track follows changes with ascending numbers until they reach the proxies. A proxy that has seen a number has seen
// all lower ones. So changes that a control plane merges are counted each with its own time.
type Track struct {
	o TrackOptions

	mu   sync.Mutex
	sent []time.Time // by number
	// seen is how many changes each proxy has seen.
	seen      []int
	proxies   int
	missing   int // proxies that have not seen the last change
	latencies []time.Duration
}

// TrackOptions says which changes to follow.
type TrackOptions struct {
	// Kinds are the types of the resources that contain the numbers. A route comes in its RouteConfiguration or
	// separately.
	Kinds []Type
	// Number returns the highest number in an encoded resource, or -1. It is called by several goroutines.
	Number func(body []byte) int
	// Follows reports whether a proxy is followed. Nil means all proxies.
	Follows func(proxy int) bool
}

// Track makes the proxies look for the numbers of changes, until the next call.
func (f *Fleet) Track(o TrackOptions) *Track {
	t := &Track{o: o, seen: make([]int, f.o.Proxies)}
	for i := range t.seen {
		if o.Follows == nil || o.Follows(i) {
			t.proxies++
		}
	}
	f.track.Store(t)
	return t
}

func (t *Track) follows(kind Type) bool { return slices.Contains(t.o.Kinds, kind) }

// Next returns the number of the change that the caller makes now.
func (t *Track) Next() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, time.Now())
	t.missing = t.proxies
	return len(t.sent) - 1
}

func (t *Track) look(index int, r response, at time.Time) {
	if t.o.Follows != nil && !t.o.Follows(index) {
		return
	}
	highest := -1
	for _, x := range r.resources {
		highest = max(highest, t.o.Number(x.body))
	}
	if highest < 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	highest = min(highest, len(t.sent)-1)
	for n := t.seen[index]; n <= highest; n++ {
		t.latencies = append(t.latencies, at.Sub(t.sent[n]))
		if n == len(t.sent)-1 {
			t.missing--
		}
	}
	t.seen[index] = max(t.seen[index], highest+1)
}

// Wait waits until every proxy has seen the last change.
func (t *Track) Wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		missing := t.missing
		t.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d proxies have not seen the last change: %w", missing, t.proxies, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Made returns the number of changes.
func (t *Track) Made() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sent)
}

// Latencies returns the times from Next to the receipt by each proxy, ascending.
func (t *Track) Latencies() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.latencies)
	slices.Sort(out)
	return out
}

// Mark returns a text with a number, to be put into a changed object.
func Mark(prefix string, number int) string { return fmt.Sprintf("%s%06d", prefix, number) }

// FindMark returns a function that finds the highest number of a mark in an encoded resource, or -1.
func FindMark(prefix string) func(body []byte) int {
	start := []byte(prefix)
	return func(body []byte) int {
		highest := -1
		for {
			at := bytes.Index(body, start)
			if at < 0 || len(body) < at+len(start)+6 {
				return highest
			}
			body = body[at+len(start):]
			n := 0
			for _, c := range body[:6] {
				if c < '0' || c > '9' {
					n = -1
					break
				}
				n = 10*n + int(c-'0')
			}
			highest = max(highest, n)
		}
	}
}
