package config

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// maxLogged bounds the log lines of one Set.
const maxLogged = 100

// Findings holds the current findings of a source. The zero value has none.
type Findings struct {
	list atomic.Pointer[[]diag.Diagnostic]
}

// Get returns the current findings. It is safe for concurrent use. The caller must not modify the result.
func (f *Findings) Get() []diag.Diagnostic {
	if list := f.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Set sorts list, removes duplicates and stores it. It logs new and resolved findings, up to maxLogged. Only one
// goroutine at a time may call it. compare must be the same function in each call, and return 0 only for equal
// findings.
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

// without returns the findings of a list that others does not have. Both must be sorted.
func without(list, others []diag.Diagnostic, compare func(a, b diag.Diagnostic) int) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(list), func(d diag.Diagnostic) bool {
		_, found := slices.BinarySearchFunc(others, d, compare)
		return found
	})
}

// ByPosition compares findings by file, line and column.
func ByPosition(a, b diag.Diagnostic) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), ByObject(a, b))
}

// ByObject compares findings about objects without a position.
func ByObject(a, b diag.Diagnostic) int {
	return cmp.Or(
		cmp.Compare(a.Object, b.Object), cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Fix, b.Fix), cmp.Compare(a.File, b.File),
	)
}
