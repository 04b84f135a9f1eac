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

// fill returns the tokens that accrued since the last call.
func (b *tokens) fill(now time.Time) {
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*b.rate)
	b.last = now
}

// take takes tokens and returns how long to wait for them.
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

// logLimiter bounds the log lines that clients can cause, all together.
type logLimiter struct {
	mu sync.Mutex
	tokens
	omitted int // lines since the last that was logged
}

// log writes a line by one of the methods of a slog.Logger, unless there were too many of all clients or, if own is not
// nil, of this one. The next line states how many were left out.
func (l *logLimiter) log(write func(string, ...any), own *tokens, message string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	if own != nil && !own.try(now) || !l.try(now) {
		l.omitted++
		l.mu.Unlock()
		return
	}
	omitted := l.omitted
	l.omitted = 0
	l.mu.Unlock()
	if omitted > 0 {
		args = append(args, "omitted_lines", omitted)
	}
	write(message, args...)
}
