package main

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/pages"
)

const (
	// gcPercent makes the garbage collector run when the heap has grown by so many percent. Most of an agent's heap is
	// allocated at the start and stays.
	gcPercent = 40
	// firstRelease is the time after the start by which most Envoys have their configuration. nextRelease is the time
	// between two releases: scrapes and renewals map pages again, and a release costs some milliseconds.
	firstRelease = 10 * time.Second
	nextRelease  = time.Minute
)

// saveMemory sets gcPercent, unless GOGC is set, and returns unused memory to the kernel until ctx ends.
func saveMemory(ctx context.Context, log *slog.Logger, environ []string) {
	set := false
	for _, v := range environ {
		set = set || strings.HasPrefix(v, "GOGC=")
	}
	if !set {
		debug.SetGCPercent(gcPercent)
	}
	for wait := firstRelease; ; wait = nextRelease {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		debug.FreeOSMemory()
		if err := pages.Release(); err != nil {
			log.Info("failed to release unused pages", "err", err)
			return
		}
	}
}
