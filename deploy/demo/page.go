package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// page is the output for the user: plain ASCII, with colours only on a terminal and without NO_COLOR (no-color.org).
type page struct {
	w      io.Writer
	colour bool
}

func newPage(f *os.File) page {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return page{w: f, colour: err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p page) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p page) title(format string, args ...any) {
	fmt.Fprintln(p.w, p.paint("1", fmt.Sprintf(format, args...)))
}

func (p page) line(format string, args ...any) { fmt.Fprintf(p.w, "  "+format+"\n", args...) }

// took prints what was done and how long it took.
func (p page) took(d time.Duration, format string, args ...any) {
	p.line("%-64s %s", fmt.Sprintf(format, args...), p.paint("36", fmt.Sprintf("%7.3f s", d.Seconds())))
}

func (p page) gap() { fmt.Fprintln(p.w) }

// table prints how often each pod answered, one line for each pod.
func (p page) table(c census) {
	p.gap()
	p.line("%s", p.paint("1", fmt.Sprintf("%-14s %-16s %9s %8s", "service", "pod", "answers", "share")))
	for _, r := range c.rows() {
		bar := strings.Repeat("#", int(r.share/5+0.5))
		p.line("%-14s %-16s %9d %6.1f %%  %s", r.service, r.pod, r.answers, r.share, p.paint("32", bar))
	}
	p.gap()
}
