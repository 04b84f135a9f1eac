package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// meshFiles is the source of the mesh configuration that --meshConfig and --networksConfig name. It hands on a
// ConfigMap for each, so that there is one way in.
type meshFiles struct {
	logger    *slog.Logger
	paths     map[string]string // by key of the ConfigMap that they stand for: mesh, meshNetworks
	namespace string
	limit     int64
	watch     watchfile.Options // its Paths are set by run
	handler   config.Handler

	data map[string]string // owned by the goroutine of run

	mu    sync.Mutex       // guards wrong
	wrong map[string]error // results of the last reading, by path
}

// meshFileKey is what the file goes by that stands for a key of the mesh's ConfigMap. No object of a cluster can have
// that name.
func meshFileKey(namespace, key string) kinds.Key {
	flag := map[string]string{"mesh": "--meshConfig", "meshNetworks": "--networksConfig"}[key]
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: namespace, Name: flag}
}

// present reports whether there is a file to read. Without one, the ConfigMap is in force.
func (m *meshFiles) present() bool {
	for _, path := range m.paths {
		if path != "" && !absent(path) {
			return true
		}
	}
	return false
}

// absent reports whether there is no file of that name. A link that leads to nothing is not absent.
func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Run hands on what the files hold, and then their changes, until ctx ends. A file that cannot be read keeps its last
// content; at the first reading there is none, which is an error.
func (m *meshFiles) Run(ctx context.Context) error {
	m.watch.Paths = slices.Collect(maps.Values(m.paths))
	w := watchfile.New(m.watch)
	defer w.Close()
	first := m.read()
	if wrong := m.Findings(); len(wrong) > 0 {
		return fmt.Errorf("failed to read the mesh configuration: %s", wrong[0])
	}
	m.handler(first)
	for w.Next(ctx, 0) {
		if changes := m.read(); len(changes) > 0 {
			m.handler(changes)
		}
	}
	return nil
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
	old, had := m.data[key]
	if !had && absent(path) {
		m.note(path, nil)
		return false
	}
	text, err := safe.ReadBounded(path, m.limit)
	m.note(path, err)
	if err != nil {
		return false
	}
	m.data[key] = string(text)
	return !had || old != m.data[key]
}

// note keeps the result of a reading, and logs an error that is new.
func (m *meshFiles) note(path string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.wrong[path]
	m.wrong[path] = err
	if err != nil && (last == nil || last.Error() != err.Error()) {
		m.logger.Warn("failed to read a mesh file", "file", path, "err", err)
	}
}

// Findings returns which files cannot be read.
func (m *meshFiles) Findings() (list []diag.Diagnostic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(m.wrong)) {
		if err := m.wrong[path]; err != nil {
			list = append(list, diag.Diagnostic{
				Severity: diag.Error, Code: "Unreadable", File: path, Message: fmt.Sprintf("cannot be read: %v", err),
				Fix: "make it readable; until then its last content stays in force, and a server does not start without it",
			})
		}
	}
	return list
}
