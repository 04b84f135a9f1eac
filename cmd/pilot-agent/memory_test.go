package main

import (
	"context"
	"log/slog"
	"runtime/debug"
	"testing"
)

// TestPace checks that the garbage collector runs early, unless GOGC is set.
func TestPace(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	ended, end := context.WithCancel(t.Context())
	end()
	saveMemory(ended, slog.New(slog.DiscardHandler), []string{"GOGC=100"})
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC the pace is %d", got)
	}
	saveMemory(ended, slog.New(slog.DiscardHandler), []string{"PATH=/bin"})
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("the pace is %d, want %d", got, gcPercent)
	}
}
