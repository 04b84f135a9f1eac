package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress shows an operation on a terminal if it takes longer than a second. It writes nothing elsewhere.
type Progress struct {
	w    io.Writer // nil if there is no terminal
	late *time.Timer

	mu    sync.Mutex
	line  string
	shown bool // whether the line is on the terminal
}

// NewProgress starts a progress line. what names the operation.
func NewProgress(w io.Writer, what string) *Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &Progress{}
	}
	return StartProgress(w, what, time.Second)
}

// StartProgress starts a progress line that is shown after some time. what names the operation.
func StartProgress(w io.Writer, what string, after time.Duration) *Progress {
	p := &Progress{w: w, line: what}
	p.late = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shown = p.w != nil
		p.write()
	})
	return p
}

// Show replaces the line by the number of objects that were read.
func (p *Progress) Show(what string, count int) {
	if p.late == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = fmt.Sprintf("reading the cluster: %s, %d", what, count)
	p.write()
}

// write replaces the line on the terminal. The caller holds mu.
func (p *Progress) write() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K"+p.line)
	}
}

// Done removes the line.
func (p *Progress) Done() {
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
