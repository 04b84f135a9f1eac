package file

import (
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch reports that something below the directory has changed, not what: the tree is looked through anyway.
type watch struct {
	dir     string
	logger  *slog.Logger
	watcher *fsnotify.Watcher // nil: only polling
	events  <-chan fsnotify.Event
	errors  <-chan error
	dirs    map[string]stamp // being watched
	warned  bool
}

func newWatch(opts Options) *watch {
	w := &watch{dir: opts.Dir, logger: opts.Logger, dirs: map[string]stamp{}}
	if opts.NoWatch {
		return w
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.failed(err)
		return w
	}
	w.watcher, w.events, w.errors = watcher, watcher.Events, watcher.Errors
	return w
}

func (w *watch) failed(err error) {
	if !w.warned {
		w.warned = true
		w.logger.Warn("the config directory cannot be watched as a whole: changes are found by polling", "err", err)
	}
}

// follow watches these directories and no others, and tells whether any of them is new. A directory that another took the place of is watched anew.
func (w *watch) follow(dirs map[string]stamp) (began bool) {
	if w.watcher == nil {
		return false
	}
	for dir, at := range w.dirs {
		if dirs[dir] != at {
			_ = w.watcher.Remove(filepath.Join(w.dir, dir)) // mostly gone already
			delete(w.dirs, dir)
		}
	}
	for dir, at := range dirs {
		if _, known := w.dirs[dir]; known {
			continue
		}
		if err := w.watcher.Add(filepath.Join(w.dir, dir)); err != nil {
			w.failed(err)
			continue
		}
		w.dirs[dir] = at
		began = true
	}
	return began
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
