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
	// pace has the garbage collector begin when the heap has grown by so many percent. Most of an agent's heap is there
	// from the start and rests.
	pace = 40
	// firstRelease is after the start, when most Envoys have their configuration. nextRelease is after each release:
	// scrapes and renewals map pages again, and a release costs some milliseconds.
	firstRelease = 10 * time.Second
	nextRelease  = time.Minute
)

// saveMemory sets the pace of the garbage collector, unless GOGC does, and until ctx ends returns to the kernel what
// the program does not use.
func saveMemory(ctx context.Context, log *slog.Logger, environ []string) {
	own := false
	for _, v := range environ {
		own = own || strings.HasPrefix(v, "GOGC=")
	}
	if !own {
		debug.SetGCPercent(pace)
	}
	for wait := firstRelease; ; wait = nextRelease {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		debug.FreeOSMemory()
		if err := pages.Release(); err != nil {
			log.Info("the pages that only the start used stay mapped", "err", err)
			return
		}
	}
}
