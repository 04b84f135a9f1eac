package config

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// maxLogged bounds the lines that one change of the findings writes to the log.
const maxLogged = 100

// Findings is what a source finds wrong at present. The zero value holds none.
type Findings struct {
	list atomic.Pointer[[]diag.Diagnostic]
}

// Get gives the list as it was last set. It may be called from any goroutine; the caller must not modify what it gets.
func (f *Findings) Get() []diag.Diagnostic {
	if list := f.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Set sorts list, whose duplicates count once, and keeps it. If it is another than before, it logs what is new and what is gone, up to a bound. It is called by one goroutine at a time;
// compare is the same in each call, and 0 for equal findings alone.
func (f *Findings) Set(list []diag.Diagnostic, compare func(a, b diag.Diagnostic) int, logger *slog.Logger) {
	slices.SortFunc(list, compare)
	list = slices.Compact(list)
	before := f.Get()
	if slices.Equal(before, list) {
		return
	}
	logged := 0
	for _, d := range list {
		if _, known := slices.BinarySearchFunc(before, d, compare); !known {
			if logged++; logged > maxLogged {
				continue
			}
			level := slog.LevelWarn
			if d.Severity == diag.Error {
				level = slog.LevelError
			}
			logger.Log(context.Background(), level, "config finding", "err", d.String())
		}
	}
	if logged > maxLogged {
		logger.Warn("more config findings are not logged: /debug/findings lists all", "count", logged-maxLogged)
	}
	gone := 0
	for _, d := range before {
		if _, still := slices.BinarySearchFunc(list, d, compare); !still {
			if gone++; gone <= maxLogged {
				logger.Info("config finding is gone", "err", d.String())
			}
		}
	}
	f.list.Store(&list)
}

// ByPosition orders findings by file, line and column.
func ByPosition(a, b diag.Diagnostic) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), ByObject(a, b))
}

// ByObject orders findings about objects that have no place in a file.
func ByObject(a, b diag.Diagnostic) int {
	return cmp.Or(
		cmp.Compare(a.Object, b.Object), cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Fix, b.Fix), cmp.Compare(a.File, b.File),
	)
}
