package multicluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// File is a kubeconfig in a file.
type File struct {
	Path       string
	Cluster    string // ID of the cluster
	Kubeconfig []byte
}

// FilesOptions configure Files.
type FilesOptions struct {
	Dir        string
	Limit      int64       // size of a file
	Controller *Controller // gets all files, in the order of their paths
	Watch      watchfile.Options
	Logger     *slog.Logger // optional
}

// Files reads the kubeconfigs of a directory: files whose names end in .yaml or .yml, in it and below. Names that begin
// with a dot or end in .txt are ignored, and others are findings. Dir itself may be a link to a directory, or a file of
// any name. Links to other directories are not followed. It is a config.Source.
type Files struct {
	o        FilesOptions
	good     map[string]File // last usable content by path; owned by the Run goroutine
	findings config.Findings
}

// NewFiles returns Files. It reads nothing.
func NewFiles(o FilesOptions) *Files {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Files{o: o, good: map[string]File{}}
}

// Run passes the files to the Controller, and again after each change, until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	f.o.Watch.Paths = []string{f.o.Dir}
	w := watchfile.New(f.o.Watch)
	defer w.Close()
	last := f.read()
	f.o.Controller.HandleFiles(last)
	for w.Next(ctx, 0) {
		if now := f.read(); !slices.EqualFunc(last, now, same) {
			last = now
			f.o.Controller.HandleFiles(now)
		}
	}
	return nil
}

func same(a, b File) bool {
	return a.Path == b.Path && a.Cluster == b.Cluster && string(a.Kubeconfig) == string(b.Kubeconfig)
}

// Findings returns a finding for each file that cannot be used, and for a directory that cannot be read.
func (f *Files) Findings() []diag.Diagnostic { return f.findings.Get() }

// read returns the usable files. A file that cannot be used keeps its last content, and so do all files below a
// directory that cannot be read. A file is parsed again only if its content has changed.
func (f *Files) read() (list []File) {
	good := map[string]File{}
	var found []diag.Diagnostic
	keep := func(path string, err error) {
		path = filepath.Clean(path)
		found = append(found, diag.Diagnostic{
			Severity: diag.Error, Code: "ClusterNotConnected", File: path,
			Message: fmt.Sprintf("kubeconfigs of remote clusters cannot be read: %v", err),
			Fix:     "correct it; until then the last content that could be used stays in force",
		})
		for p, last := range f.good {
			if p == path || strings.HasPrefix(p, path+string(filepath.Separator)) {
				good[p] = last
			}
		}
	}
	ignored := func(path, message, fix string) {
		found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: "NotRead", File: path, Message: message, Fix: fix})
	}
	root := f.root()
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error { // its errors are those of the function
		hidden := path != root && strings.HasPrefix(filepath.Base(path), ".")
		ext := filepath.Ext(path)
		named := path == root || ext == ".yaml" || ext == ".yml"
		switch {
		case hidden && e != nil && e.IsDir():
			return fs.SkipDir
		case hidden:
		case err != nil:
			keep(path, err)
		case e.IsDir():
		case e.Type()&fs.ModeSymlink != 0 && isDirectory(path):
			ignored(path, "links to other directories are not followed", "put the kubeconfigs themselves there, or links to files")
		case ext == ".txt" && path != root:
		case !named:
			ignored(path, "the file is not read: its name does not end in .yaml or .yml",
				"rename it to "+filepath.Base(path)+".yaml, or move it to another directory")
		default:
			file, err := f.file(path)
			if err != nil {
				keep(path, err)
			} else {
				good[path] = file
			}
		}
		return nil
	})
	f.good = good
	f.findings.Set(found, config.ByPosition, f.o.Logger)
	for _, file := range good {
		list = append(list, file)
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// root returns the path to walk. A link to a directory gets a separator behind it, because a walk follows no links.
func (f *Files) root() string {
	if isDirectory(f.o.Dir) && !strings.HasSuffix(f.o.Dir, string(filepath.Separator)) {
		if info, err := os.Lstat(f.o.Dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return f.o.Dir + string(filepath.Separator)
		}
	}
	return f.o.Dir
}

// isDirectory reports whether a path leads to a directory.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// file reads one file.
func (f *Files) file(path string) (File, error) {
	text, err := safe.ReadBounded(path, f.o.Limit)
	if err != nil {
		return File{}, err
	}
	if last, ok := f.good[path]; ok && bytes.Equal(last.Kubeconfig, text) {
		return last, nil
	}
	id, err := clusterOf(text)
	if err != nil {
		return File{}, errors.New(redact(err.Error(), text))
	}
	return File{path, id, text}, nil
}

// clusterOf returns the name of the cluster that a kubeconfig leads to: of its current context, or else of the first
// context with a cluster, or else of the first cluster, by name.
func clusterOf(kubeconfig []byte) (string, error) {
	c, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, name := range append([]string{c.CurrentContext}, slices.Sorted(maps.Keys(c.Contexts))...) {
		if context := c.Contexts[name]; context != nil && context.Cluster != "" {
			return context.Cluster, nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Clusters)) {
		if name != "" {
			return name, nil
		}
	}
	return "", errors.New("the kubeconfig names no cluster")
}
