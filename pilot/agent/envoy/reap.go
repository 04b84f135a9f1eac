package envoy

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Reap collects processes that ended and that nobody waits for, until ctx ends: those whose parents are gone, where
// this process is the first of its container. A process that somebody waits for is left alone: one is collected only
// after it was found twice, one interval apart.
func Reap(ctx context.Context, log *slog.Logger, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	var seen map[int]bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			seen = reap(log, seen)
		}
	}
}

// reap collects the children of this process that have ended and are in seen, and returns all that had ended.
func reap(log *slog.Logger, seen map[int]bool) (now map[int]bool) {
	now = map[int]bool{}
	for _, pid := range ended() {
		if now[pid] = true; !seen[pid] {
			continue
		}
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); got == pid && err == nil {
			log.Debug("collected a process without a parent", "pid", pid)
		}
	}
	return now
}

// ended returns the children of this process that have ended.
func ended() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	own := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// PID (NAME) STATE PARENT ...; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == own {
			pids = append(pids, pid)
		}
	}
	return pids
}
