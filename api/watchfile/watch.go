package watchfile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Timing of the collection of events, so that files that a tool writes together are read together.
const (
	gather    = 20 * time.Millisecond // quiet time that ends a collection
	gatherMax = 50 * time.Millisecond
)

// resync is the number of polls after which all directories are watched again, in case a watch was lost unnoticed.
const resync = 30

// Options are the options of a Watch.
type Options struct {
	Paths   []string      // files and directories to watch, which need not exist; empty ones are ignored
	Poll    time.Duration // longest time between two reads; 0 stands for a second
	NoWatch bool          // polls only
	Logger  *slog.Logger  // optional
}

// Watch tells its caller when to read files again; see the package comment.
type Watch struct {
	o       Options
	watcher *fsnotify.Watcher // nil while no directory is watched
	dirs    map[string]Stamp  // watched directories
	began   time.Time         // when all of them were last watched
	warned  bool

	wake   chan struct{} // capacity 1
	errors chan error    // capacity 1; further errors are dropped
	ended  chan struct{} // closed when collect has returned

	mu     sync.Mutex
	places places          // directories that should be watched
	gone   map[string]bool // directories removed or renamed since the last call of place, which the watcher no longer watches
}

// New returns a Watch of Options.Paths. Changes after New has returned are not missed.
func New(o Options) *Watch {
	o.Poll, o.Logger = cmp.Or(max(o.Poll, 0), time.Second), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Paths = slices.DeleteFunc(slices.Clone(o.Paths), func(path string) bool { return path == "" })
	w := &Watch{o: o, wake: make(chan struct{}, 1), errors: make(chan error, 1), dirs: map[string]Stamp{}}
	w.follow()
	return w
}

// follow watches the directories that determine which files the paths lead to. Links may change meanwhile, so it
// repeats until there is no new directory.
func (w *Watch) follow() {
	if w.o.NoWatch || len(w.o.Paths) == 0 {
		return
	}
	for range 3 {
		if !w.place(placesOf(w.o.Paths)) {
			return
		}
	}
}

// Next waits until files may have changed, and reports false if ctx ended first. It returns at the latest after
// Options.Poll, or after the given time, if that is shorter and not 0. It is for the loop
//
//	for w.Next(ctx, 0) { ... }
//
// whose body reads all files.
func (w *Watch) Next(ctx context.Context, within time.Duration) bool {
	if within <= 0 || within > w.o.Poll {
		within = w.o.Poll
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	var first time.Time // time of the first collected event
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.wake:
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			timer.Reset(max(0, min(gather, gatherMax-now.Sub(first))))
			continue
		case err := <-w.errors:
			w.o.Logger.Warn("failed to receive events of files: all of them are read again", "err", err)
		case <-timer.C:
		}
		w.follow()
		return ctx.Err() == nil
	}
}

// Wake makes Next return. It may be called from any goroutine.
func (w *Watch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// WatchDirectories watches exactly these directories, instead of Options.Paths. The Stamps were taken before the call.
// If a directory is new, Next returns soon, because the directory may have changed in between.
func (w *Watch) WatchDirectories(dirs map[string]Stamp) {
	if !w.o.NoWatch && w.place(places{dirs: dirs}) {
		w.Wake()
	}
}

// place watches exactly the directories of places, and reports whether any of them is new. It watches a directory again
// if another one has replaced it, or if it was removed in the meantime.
func (w *Watch) place(p places) (added bool) {
	if w.watcher == nil && !w.start() {
		return false
	}
	w.mu.Lock()
	gone := w.gone
	w.places, w.gone = p, map[string]bool{}
	w.mu.Unlock()
	for dir, at := range w.dirs {
		if stamp, ok := p.dirs[dir]; !ok || !stamp.SameFile(at) || gone[dir] {
			_ = w.watcher.Remove(dir) // usually gone already
			delete(w.dirs, dir)
		}
	}
	all := time.Since(w.began) > resync*w.o.Poll
	if all {
		w.began = time.Now()
	}
	for dir, at := range p.dirs {
		_, known := w.dirs[dir]
		if known && !all {
			continue
		}
		if err := w.watcher.Add(dir); err != nil {
			delete(w.dirs, dir)
			w.failed(err)
			continue
		}
		w.dirs[dir] = at
		added = added || !known
	}
	return added
}

// start creates the watcher, and reports whether there is one.
func (w *Watch) start() bool {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.failed(err)
		return false
	}
	w.watcher, w.ended, w.began = watcher, make(chan struct{}), time.Now()
	safe.Go(w.o.Logger, "file events", w.collect)
	return true
}

// failed logs the first error of watching.
func (w *Watch) failed(err error) {
	if !w.warned {
		w.warned = true
		w.o.Logger.Warn("failed to watch files: their changes are found by polling", "err", err)
	}
}

// collect receives the watcher's events and never blocks: while the watcher sends, it may hold the lock that Add and
// Remove need.
func (w *Watch) collect() {
	defer close(w.ended)
	events, errors := w.watcher.Events, w.watcher.Errors
	for events != nil || errors != nil {
		select {
		case e, open := <-events:
			if !open {
				events = nil
				continue
			}
			w.mu.Lock()
			matters := w.places.matter(e.Name)
			if matters && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
				w.gone[e.Name] = true
			}
			w.mu.Unlock()
			if matters {
				w.Wake()
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

// Close ends the watch.
func (w *Watch) Close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		<-w.ended
	}
}
