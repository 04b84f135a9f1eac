package xds

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// logLimiter bounds the log lines that clients can cause, all together.
type logLimiter struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	omitted int // lines since the last that was logged
}

func newLogLimiter() *logLimiter { return &logLimiter{limiter: rate.NewLimiter(20, 500)} }

// log writes a line by one of the methods of a slog.Logger, unless there were too many of all clients or, if own is not
// nil, of this one. The next line states how many were left out.
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

// noticed remembers texts, so that a line which holds for each stream of a proxy is logged for its first stream. It
// forgets all texts when it has maxNoticed of them.
type noticed struct {
	mu    sync.Mutex
	texts map[uint64]struct{} // hashes
}

var noticedSeed = maphash.MakeSeed()

// first reports whether the text is not remembered, and remembers it.
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
