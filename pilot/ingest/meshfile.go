package ingest

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

// meshFiles is the source of the mesh configuration that --meshConfig and --networksConfig name. It hands on a
// ConfigMap for each, so that there is one way in. The files are small and are read once a poll: no watch can be lost.
type meshFiles struct {
	logger    *slog.Logger
	paths     map[string]string // by key of the ConfigMap that they stand for: mesh, meshNetworks
	namespace string
	limit     int64
	poll      time.Duration
	handler   config.Handler

	data  map[string]string
	wrong map[string]string // the error of the last reading, by path: logged once
}

// meshFileKey is what the file goes by that stands for a key of the mesh's ConfigMap. No object of a cluster can have
// that name.
func meshFileKey(namespace, key string) kinds.Key {
	flag := map[string]string{"mesh": "--meshConfig", "meshNetworks": "--networksConfig"}[key]
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: namespace, Name: flag}
}

// present reports whether there is a file to read: without one, the ConfigMap is what counts.
func (m *meshFiles) present() bool {
	for _, path := range m.paths {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// run hands on what the files hold, and then their changes, until ctx ends. A file that cannot be read counts as what
// it was.
func (m *meshFiles) run(ctx context.Context) error {
	m.data, m.wrong = map[string]string{}, map[string]string{}
	m.handler(m.read())
	tick := time.NewTicker(m.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if changes := m.read(); len(changes) > 0 {
				m.handler(changes)
			}
		}
	}
}

// read takes in both files and returns those that are different.
func (m *meshFiles) read() []kinds.Change {
	var changes []kinds.Change
	for key, path := range m.paths {
		if !m.readOne(key, path) {
			continue
		}
		k := meshFileKey(m.namespace, key)
		cm := &corev1.ConfigMap{Data: map[string]string{key: m.data[key]}}
		cm.Namespace, cm.Name = k.Namespace, k.Name
		changes = append(changes, kinds.Change{Key: k, Object: &kinds.Object{Key: k, Position: path, Spec: cm}})
	}
	return changes
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
