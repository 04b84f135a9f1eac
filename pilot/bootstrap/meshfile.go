package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// meshFiles is the source of the mesh configuration that --meshConfig and --networksConfig name. It hands on one ConfigMap, the one that a directory or a
// cluster would hold, so that there is one way in. The files are small and are read once a poll: no watch can be lost.
type meshFiles struct {
	logger         *slog.Logger
	mesh, networks string
	key            kinds.Key
	limit          int64
	poll           time.Duration
	handler        config.Handler

	data  map[string]string
	wrong map[string]string // the error of the last reading, by path: told once
}

// present tells whether there is a file to read: without one, the ConfigMap is what counts.
func (m *meshFiles) present() bool {
	for _, path := range []string{m.mesh, m.networks} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// run hands on what the files hold, and then their changes, until ctx ends. A file that cannot be read counts as what it was.
func (m *meshFiles) run(ctx context.Context) error {
	m.data, m.wrong = map[string]string{}, map[string]string{}
	m.read()
	m.handler([]kinds.Change{m.change()})
	tick := time.NewTicker(m.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if m.read() {
				m.handler([]kinds.Change{m.change()})
			}
		}
	}
}

func (m *meshFiles) change() kinds.Change {
	data := map[string]string{}
	for k, v := range m.data {
		data[k] = v
	}
	cm := &corev1.ConfigMap{Data: data}
	cm.Namespace, cm.Name = m.key.Namespace, m.key.Name
	return kinds.Change{Key: m.key, Object: &kinds.Object{Key: m.key, Position: m.mesh, Spec: cm}}
}

// read takes in both files and tells whether one is different.
func (m *meshFiles) read() bool {
	changed := m.readOne("mesh", m.mesh)
	return m.readOne("meshNetworks", m.networks) || changed
}

func (m *meshFiles) readOne(key, path string) bool {
	if path == "" {
		return false
	}
	text, err := readBounded(path, m.limit)
	if errors.Is(err, fs.ErrNotExist) {
		if _, had := m.data[key]; !had {
			return false
		}
	}
	if err != nil {
		if m.wrong[path] != err.Error() {
			m.logger.Warn("mesh file keeps its last content", "file", path, "err", err)
			m.wrong[path] = err.Error()
		}
		return false
	}
	delete(m.wrong, path)
	old, had := m.data[key]
	m.data[key] = string(text)
	return !had || old != m.data[key]
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, limit)
	}
	return b.Bytes(), nil
}
