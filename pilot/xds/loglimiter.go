package xds

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// logLimiter bounds the log lines that all clients together can cause.
type logLimiter struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	omitted int // lines dropped since the last one was logged
}

func newLogLimiter() *logLimiter { return &logLimiter{limiter: rate.NewLimiter(20, 500)} }

// log writes a line with a method of slog.Logger, unless all clients, or this client if own is not nil, have caused too
// many lines. The next line has the number of dropped lines.
func (l *logLimiter) log(write func(string, ...any), own *rate.Limiter, message string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	if own != nil && !own.AllowN(now, 1) || !l.limiter.AllowN(now, 1) {
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

// maxNoticed is the number of texts that a noticed remembers.
const maxNoticed = 1 << 12

// noticed remembers texts, so that a line about all streams of a proxy is logged for its first stream only. It forgets
// all texts when it has maxNoticed of them.
type noticed struct {
	mu    sync.Mutex
	texts map[uint64]struct{} // hashes
}

var noticedSeed = maphash.MakeSeed()

// first remembers a text, and reports whether it is new.
func (n *noticed) first(text string) bool {
	hash := maphash.String(noticedSeed, text)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.texts[hash]; ok {
		return false
	}
	if n.texts == nil || len(n.texts) >= maxNoticed {
		n.texts = map[uint64]struct{}{}
	}
	n.texts[hash] = struct{}{}
	return true
}
