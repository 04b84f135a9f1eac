package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options of a log.
type Options struct {
	Writer io.Writer // each record is one Write
	JSON   bool
	Levels *Levels
}

// Log is where records go.
type Log struct {
	out io.Writer

	mu     sync.Mutex // guards buf, panics and the order of lines
	buf    bytes.Buffer
	panics map[string]uint64
}

// New makes a log and the logger that writes to it.
func New(o Options) (*slog.Logger, *Log) {
	l := &Log{out: o.Writer, panics: map[string]uint64{}}
	h := &handler{log: l, levels: o.Levels, scope: o.Levels.scope("")}
	opts := &slog.HandlerOptions{Level: slog.Level(-100), ReplaceAttr: h.replace}
	if o.JSON {
		h.json, h.attrs = true, slog.NewJSONHandler(&l.buf, opts)
	} else {
		h.attrs = slog.NewTextHandler(&l.buf, opts)
	}
	return slog.New(h), l
}

// Panics returns how many panics were logged, by the name of what panicked.
func (l *Log) Panics() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.panics)
}

// handler writes for one scope. The text layout is Istio's: time, level, scope and message between tabs, then the
// attributes.
type handler struct {
	log    *Log
	levels *Levels
	json   bool
	name   string // of the scope, empty for the default
	scope  *scope
	attrs  slog.Handler // formats into log.buf, under log.mu
}

// Enabled passes every error on, so that a panic is counted even where errors are not written.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.scope.level.Level() || level >= slog.LevelError
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if r.Level >= slog.LevelError {
		h.countPanic(r)
	}
	if r.Level < h.scope.level.Level() {
		return nil
	}
	h.log.buf.Reset()
	traced, caller := r.Level >= h.scope.stack.Level(), ""
	if h.scope.callers.Load() {
		caller = callerOf(r.PC)
	}
	if h.json {
		if caller != "" {
			r.AddAttrs(slog.String("caller", caller))
		}
		if traced {
			r.AddAttrs(slog.String("stack", string(debug.Stack())))
		}
	} else {
		h.prefix(r, caller)
		r = attrsOnly(r)
	}
	if err := h.attrs.Handle(ctx, r); err != nil {
		return err
	}
	line := h.log.buf.Bytes()
	if bytes.HasSuffix(line, []byte("\t\n")) { // no attributes followed
		line = append(line[:len(line)-2], '\n')
	}
	if traced && !h.json {
		line = append(line, debug.Stack()...)
	}
	_, err := h.log.out.Write(line)
	return err
}

// callerOf returns the folder, file and line of a program counter.
func callerOf(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if f.File == "" {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line)
}

// prefix writes what stands before the attributes; caller may be empty.
func (h *handler) prefix(r slog.Record, caller string) {
	b := &h.log.buf
	b.Write(r.Time.UTC().AppendFormat(b.AvailableBuffer(), "2006-01-02T15:04:05.000000Z"))
	b.WriteByte('\t')
	b.WriteString(levelName(r.Level))
	b.WriteByte('\t')
	if h.name != "" {
		b.WriteString(h.name)
		b.WriteByte('\t')
	}
	if caller != "" {
		b.WriteString(caller)
		b.WriteByte('\t')
	}
	b.WriteString(r.Message)
	b.WriteByte('\t')
}

func (h *handler) countPanic(r slog.Record) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		var p *safe.Panic
		if ok && errors.As(err, &p) {
			h.log.panics[p.Name]++
			return false
		}
		return true
	})
}

// attrsOnly is r without what prefix has written.
func attrsOnly(r slog.Record) slog.Record {
	bare := slog.NewRecord(time.Time{}, r.Level, "", r.PC)
	r.Attrs(func(a slog.Attr) bool {
		bare.AddAttrs(a)
		return true
	})
	return bare
}

// replace adapts slog's own three attributes, and durations, to the layout.
func (h *handler) replace(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String()) // in JSON too
	}
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		if h.json && a.Value.Kind() == slog.KindTime {
			return slog.String("time", a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"))
		}
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			if h.json {
				return slog.String("level", levelName(level))
			}
			return slog.Attr{}
		}
	case slog.MessageKey:
		if !h.json && a.Value.String() == "" {
			return slog.Attr{}
		}
	}
	return a
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	rest := attrs
	for i, a := range attrs {
		if a.Key == "scope" {
			next.name = a.Value.String()
			next.scope = h.levels.scope(next.name)
			if !h.json {
				rest = append(append([]slog.Attr{}, attrs[:i]...), attrs[i+1:]...)
			}
		}
	}
	next.attrs = h.attrs.WithAttrs(rest)
	return &next
}

func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.attrs = h.attrs.WithGroup(name)
	return &next
}
