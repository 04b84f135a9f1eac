package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// memory holds the memory statistics of a server's Go runtime.
type memory struct {
	live, allocated int64 // bytes on the heap, and bytes ever allocated
	goroutines      int64
}

// heap makes a server collect its garbage, and returns its memory.
func (s *server) heap(ctx context.Context) (m memory, err error) {
	if err := s.get(ctx, "/debug/pprof/heap?gc=1", io.Discard); err != nil {
		return m, err
	}
	var text bytes.Buffer
	if err := s.get(ctx, "/metrics", &text); err != nil {
		return m, err
	}
	wanted := map[string]*int64{"go_memstats_heap_alloc_bytes": &m.live, "go_memstats_alloc_bytes_total": &m.allocated,
		"go_goroutines": &m.goroutines}
	for line := range bytes.Lines(text.Bytes()) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		to := wanted[string(name)]
		if to == nil {
			continue
		}
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return m, fmt.Errorf("read %s: %w", name, err)
		}
		*to = int64(n)
		delete(wanted, string(name))
	}
	if len(wanted) > 0 {
		return m, fmt.Errorf("%s says nothing of its memory", s.title)
	}
	return m, nil
}

// get copies a page of the monitoring port.
func (s *server) get(ctx context.Context, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitoring+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch %s: %s", path, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}
