package xds

import (
	"sync"
	"time"
)

// tokens is a token bucket.
type tokens struct {
	rate, burst float64
	used        float64
	last        time.Time
}

// fill brings back what came in since the last time.
func (b *tokens) fill(now time.Time) {
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*b.rate)
	b.last = now
}

// take takes tokens and says how long to wait for them.
func (b *tokens) take(now time.Time, n int) time.Duration {
	b.fill(now)
	b.used += float64(n)
	if b.used <= b.burst {
		return 0
	}
	return time.Duration((b.used - b.burst) / b.rate * float64(time.Second))
}

// try takes one token if there is one.
func (b *tokens) try(now time.Time) bool {
	b.fill(now)
	if b.used+1 > b.burst {
		return false
	}
	b.used++
	return true
}

// complaints bounds the log lines that clients can cause, all together.
type complaints struct {
	mu sync.Mutex
	tokens
	unsaid int // complaints since the last that was logged
}

// heard tells whether to log what the client did wrong, and how much was not logged before. A client that goes on, and many that connect again and again, are heard now and
// then only.
func (c *conn) heard() (unsaid int, ok bool) {
	now, all := time.Now(), &c.server.complaints
	all.mu.Lock()
	defer all.mu.Unlock()
	if !c.complaints.try(now) || !all.try(now) {
		all.unsaid++
		return 0, false
	}
	unsaid, all.unsaid = all.unsaid, 0
	return unsaid, true
}
