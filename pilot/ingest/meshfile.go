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

// meshFiles is the source of the files that --meshConfig and --networksConfig name. It delivers each file as a
// ConfigMap, so that the mesh configuration has one input.
type meshFiles struct {
	logger    *slog.Logger
	paths     map[string]string // by key in the mesh's ConfigMap: mesh, meshNetworks
	namespace string
	limit     int64
	watch     watchfile.Options // run sets its Paths
	handler   config.Handler

	data map[string]string // owned by the Run goroutine

	mu    sync.Mutex       // guards wrong
	wrong map[string]error // errors of the last read, nil for none, by path
}

// meshFileKey is the key of the ConfigMap that stands for a file. Its name is not valid for an object of a cluster.
func meshFileKey(namespace, key string) kinds.Key {
	flag := map[string]string{"mesh": "--meshConfig", "meshNetworks": "--networksConfig"}[key]
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: namespace, Name: flag}
}

// present reports whether at least one of the files exists. Without a file, the ConfigMap is in force.
func (m *meshFiles) present() bool {
	for _, path := range m.paths {
		if path != "" && !absent(path) {
			return true
		}
	}
	return false
}

// absent reports whether a path does not exist. A dangling link exists.
func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Run delivers the contents of the files, and then their changes, until ctx ends. If a file becomes unreadable, its
// last content stays in force. Run fails if a file is unreadable at the first read.
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

// read reads both files and returns the ones that have changed.
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

// note records the result of a read, and logs an error if it is new.
func (m *meshFiles) note(path string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.wrong[path]
	m.wrong[path] = err
	if err != nil && (last == nil || last.Error() != err.Error()) {
		m.logger.Warn("failed to read a mesh file", "file", path, "err", err)
	}
}

// Findings returns a finding for each unreadable file.
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
