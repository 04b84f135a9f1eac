package install

import (
	"context"
	"strings"
	"sync"
)

// Load is a client that sends requests one after the other.
type Load struct {
	kind  func(answer string) string
	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	answers map[string]int // by kind
	errs    []error
}

// Load starts a client that sends requests to a URL from the pod with an app label. kind returns the kind of an answer,
// which is a text of the program mesh-echo. The test must call Stop before it ends.
func (w *World) Load(namespace, app, url string, kind func(answer string) string) *Load {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	l := &Load{kind: kind, stop: stop, ended: make(chan struct{}), answers: map[string]int{}}
	go func() {
		defer close(l.ended)
		for ctx.Err() == nil {
			l.add(w.Exec(namespace, app, "client", "--count=50", url))
		}
	}()
	return l
}

// add records the answers in the output of one run of the client, and the run's error.
func (l *Load) add(out string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errs = append(l.errs, err)
	}
	for answer := range strings.SplitSeq(out, "\n\n") {
		if strings.Contains(answer, "StatusCode=") {
			l.answers[l.kind(answer)]++
		}
	}
}

// Stop waits for the current run of the client, and starts no other.
func (l *Load) Stop() { l.stop(); <-l.ended }

// Reset returns the number of answers by kind and the client's errors since the last call.
func (l *Load) Reset() (answers map[string]int, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers, errs = l.answers, l.errs
	l.answers, l.errs = map[string]int{}, nil
	return answers, errs
}

// StatusCode returns the HTTP status that an answer has, as a text.
func StatusCode(answer string) string {
	_, status, _ := strings.Cut(answer, "StatusCode=")
	status, _, _ = strings.Cut(status, "\n")
	return status
}
