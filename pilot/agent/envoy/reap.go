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

// Reap collects orphaned processes that have ended, until ctx ends. They become children of this process if it is PID
// 1 of its container. A process is collected only when it is found twice, one interval apart, so that code that
// started it can wait for it. Reap returns nil.
func Reap(ctx context.Context, log *slog.Logger, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	var previous map[int]bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			previous = reap(log, previous)
		}
	}
}

// reap collects the ended children of this process that are in previous, and returns all ended children.
func reap(log *slog.Logger, previous map[int]bool) (current map[int]bool) {
	current = map[int]bool{}
	for _, pid := range ended() {
		if current[pid] = true; !previous[pid] {
			continue
		}
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); got == pid && err == nil {
			log.Debug("collected an orphaned process", "pid", pid)
		}
	}
	return current
}

// ended returns the children of this process that have ended and were not collected.
func ended() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	self := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The line is PID (NAME) STATE PARENT .... The name may contain any character.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == self {
			pids = append(pids, pid)
		}
	}
	return pids
}
