package file

import (
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// watch reports that something below the directory has changed, not what: the tree is looked through anyway.
type watch struct {
	dir     string
	logger  *slog.Logger
	watcher *fsnotify.Watcher // nil if the directory is only polled
	events  chan struct{}     // holds one
	errors  chan error        // holds one; more are as good as one
	dirs    map[string]stamp  // being watched
	again   time.Duration     // how often all are watched anew, should a watch have got lost unnoticed
	began   time.Time         // when they last were
	warned  bool
	ended   chan struct{} // closed when collect has returned

	mu   sync.Mutex
	gone map[string]bool // what was removed or renamed since follow was last called: the watcher drops a directory that is
}

func newWatch(opts Options) *watch {
	w := &watch{dir: opts.Dir, logger: opts.Logger, dirs: map[string]stamp{}, again: 30 * opts.Poll, began: time.Now(), gone: map[string]bool{}}
	if opts.NoWatch {
		return w
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.failed(err)
		return w
	}
	w.watcher, w.events, w.errors, w.ended = watcher, make(chan struct{}, 1), make(chan error, 1), make(chan struct{})
	safe.Go(opts.Logger, "config directory events", w.collect)
	return w
}

// collect takes the watcher's events without ever blocking: the watcher may hold, while it sends, the lock that Add
// and Remove need.
func (w *watch) collect() {
	defer close(w.ended)
	events, errors := w.watcher.Events, w.watcher.Errors
	for events != nil || errors != nil {
		select {
		case e, open := <-events:
			if !open {
				events = nil
				continue
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				w.mu.Lock()
				w.gone[e.Name] = true
				w.mu.Unlock()
			}
			select {
			case w.events <- struct{}{}:
			default:
			}
		case err, open := <-errors:
			if !open {
				errors = nil
				continue
			}
			select {
			case w.errors <- err:
			default:
			}
		}
	}
}

func (w *watch) failed(err error) {
	if !w.warned {
		w.warned = true
		w.logger.Warn("the config directory cannot be watched as a whole: changes are found by polling", "err", err)
	}
}

// follow watches these directories and no others, and reports whether any of them is new. A directory that another took
// the place of is watched anew, and so is one that was away, even if it is the same again.
func (w *watch) follow(dirs map[string]stamp) (began bool) {
	if w.watcher == nil {
		return false
	}
	w.mu.Lock()
	gone := w.gone
	w.gone = map[string]bool{}
	w.mu.Unlock()
	for dir, at := range w.dirs {
		if path := filepath.Join(w.dir, dir); dirs[dir] != at || gone[path] {
			_ = w.watcher.Remove(path) // mostly gone already
			delete(w.dirs, dir)
		}
	}
	all := time.Since(w.began) > w.again
	if all {
		w.began = time.Now()
	}
	for dir, at := range dirs {
		_, known := w.dirs[dir]
		if known && !all {
			continue
		}
		if err := w.watcher.Add(filepath.Join(w.dir, dir)); err != nil {
			delete(w.dirs, dir)
			w.failed(err)
			continue
		}
		w.dirs[dir] = at
		began = began || !known
	}
	return began
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		<-w.ended
	}
}
