package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows on a terminal what takes longer than a second. It writes nothing elsewhere.
type progress struct {
	w    io.Writer // nil: no terminal
	late *time.Timer

	mu    sync.Mutex
	line  string
	shown bool // the line is on the terminal
}

// newProgress starts with what is being done.
func newProgress(w io.Writer, what string) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return startProgress(w, what, time.Second)
}

func startProgress(w io.Writer, what string, after time.Duration) *progress {
	p := &progress{w: w, line: what}
	p.late = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shown = p.w != nil
		p.write()
	})
	return p
}

// show replaces the line by how much was read of something.
func (p *progress) show(what string, count int) {
	if p.late == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = fmt.Sprintf("reading the cluster: %s, %d", what, count)
	p.write()
}

// write puts the line in the place of the last one. The caller holds mu.
func (p *progress) write() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K"+p.line)
	}
}

// done removes the line.
func (p *progress) done() {
	if p.late == nil {
		return
	}
	p.late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.shown, p.w = false, nil
}
