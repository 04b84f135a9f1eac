package main

import (
	"context"
	"log/slog"
	"runtime/debug"
	"testing"
)

// TestPace: the garbage collector of an agent begins early, unless GOGC says when.
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
	if got := debug.SetGCPercent(100); got != pace {
		t.Errorf("the pace is %d, want %d", got, pace)
	}
}
