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

// Get returns the list as it was last set. It may be called from any goroutine; the caller must not modify what it
// gets.
func (f *Findings) Get() []diag.Diagnostic {
	if list := f.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Set sorts list, whose duplicates count once, and keeps it. If it is another than before, it logs what is new and what
// is gone, up to a bound. It is called by one goroutine at a time; compare is the same in each call, and 0 for equal
// findings alone.
func (f *Findings) Set(list []diag.Diagnostic, compare func(a, b diag.Diagnostic) int, logger *slog.Logger) {
	slices.SortFunc(list, compare)
	list = slices.Compact(list)
	before := f.Get()
	if slices.Equal(before, list) {
		return
	}
	added, gone := without(list, before, compare), without(before, list, compare)
	for _, d := range added[:min(len(added), maxLogged)] {
		level := slog.LevelWarn
		switch d.Severity {
		case diag.Error:
			level = slog.LevelError
		case diag.Info:
			level = slog.LevelInfo
		}
		logger.Log(context.Background(), level, "config finding", "err", d.String())
	}
	if more := len(added) - maxLogged; more > 0 {
		logger.Warn("more config findings are not logged: /debug/findings lists all", "count", more)
	}
	for _, d := range gone[:min(len(gone), maxLogged)] {
		logger.Info("config finding is gone", "err", d.String())
	}
	if more := len(gone) - maxLogged; more > 0 {
		logger.Info("more config findings are gone", "count", more)
	}
	f.list.Store(&list)
}

// without returns the findings of a list that are not among others. Both are sorted.
func without(list, others []diag.Diagnostic, compare func(a, b diag.Diagnostic) int) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(list), func(d diag.Diagnostic) bool {
		_, found := slices.BinarySearchFunc(others, d, compare)
		return found
	})
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
