package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
)

// entry is one file to read.
type entry struct {
	path  string // relative to the directory
	stamp watchfile.Stamp
}

// listing is the result of a walk through the tree.
type listing struct { // in byte order of their paths
	files    []entry                    // in byte order of their paths
	dirs     map[string]watchfile.Stamp // directories to watch, by path
	unknown  []string                   // files and directories that exist but are unreadable
	findings []diag.Diagnostic          // findings, with one for each unknown path
	err      error                      // error of the directory itself
}

// hides reports whether the listing cannot tell if the file exists.
func (l *listing) hides(file string) bool {
	return l.err != nil || slices.ContainsFunc(l.unknown, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") })
}

// maxDirDepth bounds the depth of the tree.
const maxDirDepth = 64

// walker lists one tree. It opens everything below root, which refuses links that lead outside.
type walker struct {
	opts Options
	root *os.Root
	seen map[[2]uint64]bool // visited directories; links may lead to a directory twice
	listing
}

func list(opts Options) listing {
	// Opened for each walk, because mounts and links may have changed.
	root, err := os.OpenRoot(opts.Dir)
	if err != nil {
		return listing{err: err}
	}
	defer root.Close()
	w := walker{opts: opts, root: root, seen: map[[2]uint64]bool{}, listing: listing{dirs: map[string]watchfile.Stamp{}}}
	if err := w.dir(".", 0); err != nil {
		return listing{err: err}
	}
	slices.SortFunc(w.files, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	w.bound()
	return w.listing
}

func (w *walker) find(file, code, fix, format string, args ...any) {
	w.findings = append(w.findings, diag.Diagnostic{
		Severity: diag.Error, Code: code, Message: fmt.Sprintf(format, args...), Fix: fix, File: filepath.Join(w.opts.Dir, file),
	})
}

// keptUntil ends the fix of a finding about an unreadable file or directory.
const keptUntil = "; until then its last good content stays in force, and a server does not start without it"

// skip records an unreadable file or directory.
func (w *walker) skip(file, code, fix, format string, args ...any) {
	w.unknown = append(w.unknown, file)
	w.find(file, code, fix+keptUntil, format, args...)
}

// unreadable records a file or directory that cannot be opened.
func (w *walker) unreadable(file string, err error) {
	fix := "make it readable, or remove it"
	switch {
	case strings.Contains(err.Error(), "escapes"):
		fix = "put the file itself there, for only links that stay below the config directory are followed"
	case errors.Is(err, fs.ErrNotExist):
		fix = "put the file there that the link names, or remove the link"
	}
	w.skip(file, "Unreadable", fix, "cannot be read: %v", bare(err))
}

func (w *walker) dir(dir string, depth int) error {
	if depth > maxDirDepth {
		w.skip(dir, "Limit", "move it up", "directories are nested more than %d levels deep", maxDirDepth)
		return nil
	}
	f, err := w.root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at := watchfile.StampOf(info)
	if w.seen[[2]uint64{at.Device, at.Inode}] {
		return nil
	}
	w.seen[[2]uint64{at.Device, at.Inode}] = true
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	w.dirs[filepath.Join(w.opts.Dir, dir)] = at
	// Sorted, so that a directory with several links is always read under the same path.
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			w.entry(path.Join(dir, e.Name()), e.Type(), depth)
		}
	}
	return nil
}

func (w *walker) entry(file string, mode fs.FileMode, depth int) {
	if mode.IsRegular() && !isConfig(file) {
		ext := strings.ToLower(path.Ext(file))
		if meant := diag.Nearest(ext, extensions()); meant != "" && ext[:2] == meant[:2] { // .xml and .html are near, too
			w.findings = append(w.findings, diag.Diagnostic{
				Severity: diag.Warning, Code: "NotRead", Message: "the file is not read: its name does not end in .yaml, .yml or .json",
				Fix: "rename it to " + strings.TrimSuffix(path.Base(file), path.Ext(file)) + meant, File: filepath.Join(w.opts.Dir, file),
			})
		}
		return
	}
	info, err := w.root.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mode&fs.ModeSymlink == 0:
		return // removed since the directory was read
	case err != nil:
		if isConfig(file) || w.mayBeDirectory(file) {
			w.unreadable(file, err)
		}
		return
	}
	switch {
	case info.IsDir():
		if err := w.dir(file, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.unreadable(file, err)
		}
	case !isConfig(file):
	case info.Mode().IsRegular():
		w.files = append(w.files, entry{file, watchfile.StampOf(info)})
	default:
		w.skip(file, "NotAFile", "put a file there", "is not a regular file and is not read")
	}
}

// mayBeDirectory reports whether an unreadable name may be a directory of files: a link to a directory outside, or a
// name without an extension or with ".d".
func (w *walker) mayBeDirectory(file string) bool {
	if info, err := os.Stat(filepath.Join(w.opts.Dir, file)); err == nil {
		return info.IsDir()
	}
	ext := path.Ext(file)
	return ext == "" || ext == ".d"
}

// bound removes the files beyond the limits. If they were read before, their content stays in force.
func (w *walker) bound() {
	var total int64
	for i, f := range w.files {
		total += min(f.stamp.Size, w.opts.Limits.FileSize)
		if i < w.opts.Limits.Files && total <= w.opts.Limits.FilesTotal {
			continue
		}
		for _, rest := range w.files[i+1:] {
			w.unknown = append(w.unknown, rest.path)
		}
		w.skip(f.path, "Limit", "remove files", "neither this file nor the files after it are read: a config directory has at most %d files "+
			"and %d bytes",
			w.opts.Limits.Files, w.opts.Limits.FilesTotal)
		w.files = w.files[:i]
		return
	}
}

// extensions returns the file name extensions of files that are read.
func extensions() []string { return []string{".yaml", ".yml", ".json"} }

func isConfig(file string) bool {
	return slices.Contains(extensions(), strings.ToLower(path.Ext(file)))
}
