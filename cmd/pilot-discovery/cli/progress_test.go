package cli

import (
	"strings"
	"testing"
	"time"
)

// A progress line is for terminals, appears once the work takes long, and is gone at the end.
func TestProgress(t *testing.T) {
	var w strings.Builder
	p := NewProgress(&w, "reading")
	p.Show("Pod", 500)
	p.Done()
	if w.Len() > 0 {
		t.Errorf("where there is no terminal: %q", w.String())
	}
	p = StartProgress(&w, "reading", time.Hour)
	p.Show("Pod", 500)
	p.Done()
	if w.Len() > 0 {
		t.Errorf("of short work: %q", w.String())
	}
	shown := make(chan string, 1)
	p = StartProgress(writerFunc(func(text string) {
		select {
		case shown <- text:
		default:
		}
	}), "reading", 0)
	if got := <-shown; got != "\r\x1b[Kreading" {
		t.Errorf("at first: %q", got)
	}
	p.Show("Pod", 500)
	if got := <-shown; got != "\r\x1b[Kreading the cluster: Pod, 500" {
		t.Errorf("then: %q", got)
	}
	p.Done()
	if got := <-shown; got != "\r\x1b[K" {
		t.Errorf("at the end: %q", got)
	}
	p.Show("Pod", 501)
	if len(shown) > 0 {
		t.Errorf("after the end: %q", <-shown)
	}
}

type writerFunc func(string)

func (f writerFunc) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}
