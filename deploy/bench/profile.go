package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// profileCPU writes a CPU profile of a server: for a length if it is running, or of its start, from its first answer.
func (s *server) profileCPU(ctx context.Context, file string, running bool, length time.Duration) error {
	if running {
		if err := s.ready(ctx); err != nil {
			return err
		}
	} else {
		length = 3 * time.Second
		if err := s.poll(ctx, "serve profiles", func() error { return s.get(ctx, "/debug/pprof/cmdline", io.Discard) }); err != nil {
			return err
		}
	}
	return s.fetch(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(length.Seconds()))), file)
}

// fetch writes a page of the monitoring port to a file.
func (s *server) fetch(ctx context.Context, path, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	to, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	err = s.get(ctx, path, to)
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	return err
}
