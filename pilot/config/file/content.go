package file

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// How long what looks like a write in progress is waited for.
const (
	restUnfinished = 500 * time.Millisecond // shorter than before, or no newline at the end
	restEmpty      = 2 * time.Second
	restMissing    = 100 * time.Millisecond
	coarseClock    = 2 * time.Second // a file may change again within this time and keep its time of change, on NFS for one
)

// content is what one file says.
type content struct {
	read     stamp // of the bytes that are in force; of those that were refused for good too
	readAt   time.Time
	hash     uint64
	size     int
	objects  []held
	findings []diag.Diagnostic
	unsafe   []diag.Diagnostic // why a security object of the first load cannot be used

	doubt      stamp // the last look at what is waited for
	doubtSince time.Time
	missing    bool
}

// held is an object in force, and where it is written.
type held struct {
	object    *kinds.Object
	line, col int
}

// scan brings files up to date. If recheck is not 0, something is waited for, and scan should be called again after that time.
func (s *Source) scan() (found listing, recheck time.Duration) {
	found = list(s.opts)
	if found.err == nil && len(found.files) == 0 && len(s.files) > 0 && len(found.unknown) == 0 {
		found.err = errEmpty
	}
	wait := func(d time.Duration) {
		if d > 0 && (recheck == 0 || d < recheck) {
			recheck = d
		}
	}
	if found.err != nil {
		return found, 0
	}
	if s.watch.follow(found.dirs) {
		wait(gather) // what happened before the watch began was not reported
	}
	root, err := os.OpenRoot(s.opts.Dir)
	if err != nil {
		found.err = err
		return found, 0
	}
	defer root.Close() //nolint:errcheck // only read
	present := make(map[string]bool, len(found.files))
	arriving := false // a new file is being written: it may be one that is gone, under another name
	for _, e := range found.files {
		present[e.path] = true
		c := s.files[e.path]
		if c == nil {
			c = &content{}
		}
		left := s.update(root, c, e)
		wait(left)
		if !c.readAt.IsZero() || left > 0 {
			s.files[e.path] = c
		}
		arriving = arriving || c.readAt.IsZero() && left > 0
	}
	for file, c := range s.files {
		switch {
		case present[file]:
			c.missing = false
		case found.hides(file):
		default:
			if !c.missing {
				c.missing, c.doubtSince = true, time.Now()
			}
			if left := restMissing - time.Since(c.doubtSince); left > 0 {
				wait(left)
			} else if arriving {
				continue
			} else {
				delete(s.files, file)
			}
		}
	}
	return found, recheck
}

// update reads a file if it has changed, and gives how long to wait before it can be judged, or 0.
func (s *Source) update(root *os.Root, c *content, e entry) time.Duration {
	fresh := c.readAt.IsZero()
	if !fresh && c.read == e.stamp && c.readAt.Sub(e.stamp.changed) > coarseClock {
		c.doubtSince = time.Time{}
		return 0
	}
	now := time.Now()
	data, after, err := read(root, e.path, s.opts.Limits.FileSize)
	if err != nil {
		if os.IsNotExist(err) {
			return gather
		}
		c.read, c.readAt, c.hash = stamp{}, now, 0
		c.findings = []diag.Diagnostic{{
			Severity: diag.Error, Code: "Unreadable", File: filepath.Join(s.opts.Dir, e.path), Message: fmt.Sprintf("cannot be read: %v", bare(err)),
			Fix: "what it said before stays in force",
		}}
		return 0
	}
	hash := xxhash.Sum64(data)
	if !fresh && hash == c.hash && len(data) == c.size && c.read != (stamp{}) {
		c.read, c.readAt, c.doubtSince = after, now, time.Time{}
		c.dropDoubt()
		return 0
	}
	if rest := c.rest(e, after, data); rest > 0 {
		if c.doubt != after || c.doubtSince.IsZero() {
			c.doubt, c.doubtSince = after, now
			// A file that nobody has touched for long is not being written.
			if old := now.Sub(after.changed); fresh && old > 0 {
				c.doubtSince = now.Add(-min(old, rest))
			}
		}
		if left := rest - now.Sub(c.doubtSince); left > 0 {
			if len(data) == 0 {
				c.findings = []diag.Diagnostic{emptied(filepath.Join(s.opts.Dir, e.path))}
			}
			return left
		}
	}
	c.doubtSince = time.Time{}
	c.read, c.readAt, c.hash, c.size = after, now, hash, len(data)
	c.take(s.decode(e.path, data), validation.MentionsSecurity(data))
	return 0
}

func emptied(file string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "Emptied", File: file, Message: "the file has become empty, as it does while it is written",
		Fix: fmt.Sprintf("what it said before stays in force until it has been empty for %v", restEmpty),
	}
}

// dropDoubt removes the finding about a file that was empty for a moment.
func (c *content) dropDoubt() {
	c.findings = slices.DeleteFunc(c.findings, func(d diag.Diagnostic) bool { return d.Code == "Emptied" })
}

// rest is how long a file in this state must not have changed before it counts as written.
func (c *content) rest(e entry, after stamp, data []byte) time.Duration {
	replaced := c.read.inode != 0 && c.read.inode != after.inode
	switch {
	case len(data) == 0 && len(c.objects) > 0:
		return restEmpty
	case after != e.stamp: // it changed while it was read
		return restUnfinished
	case replaced || len(data) == 0:
		return 0
	case data[len(data)-1] != '\n', len(data) < c.size:
		return restUnfinished
	}
	return 0
}

// read gives a file's bytes, at most one more than limit, and its stamp after reading.
func read(root *os.Root, file string, limit int64) ([]byte, stamp, error) {
	// Without O_NONBLOCK, opening a FIFO that took the file's place would wait for a writer.
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err != nil {
		return nil, stamp{}, err
	} else if !info.Mode().IsRegular() {
		return nil, stamp{}, fmt.Errorf("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, stamp{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	return data, stampOf(info), nil
}

// decode never panics: a fault of the decoder costs one file.
func (s *Source) decode(file string, data []byte) (r validation.Result) {
	name := filepath.Join(s.opts.Dir, file)
	if err := safe.Do("decode config", func() { r = validation.Decode(s.opts.Limits, name, data) }); err != nil {
		r = validation.Result{Broken: &diag.Diagnostic{Severity: diag.Error, Code: "Internal", File: name, Message: err.Error(), Fix: "report it, with the file"}}
	}
	return r
}

// take puts what was decoded into force, and for each document that cannot be used what it said before.
func (c *content) take(r validation.Result, security bool) {
	c.findings, c.unsafe = r.Findings(), nil
	if r.Broken != nil {
		if security {
			c.unsafe = append(c.unsafe, *r.Broken)
		}
		return
	}
	before := map[kinds.Key]held{}
	for _, h := range c.objects {
		if _, dup := before[h.object.Key]; !dup {
			before[h.object.Key] = h
		}
	}
	var objects []held
	vague := map[*kinds.Kind]bool{} // kinds of which a document does not say which object it is; nil is any
	for _, d := range r.Documents {
		switch {
		case d.Object != nil:
			objects = append(objects, held{d.Object, d.Line, d.Column})
			delete(before, d.Object.Key)
		case d.Key.Name != "":
			if h, ok := before[d.Key]; ok {
				objects = append(objects, held{h.object, d.Line, d.Column})
				delete(before, d.Key)
			}
		default:
			vague[d.Key.Kind] = true
		}
		if d.Security && validation.HasErrors(d.Findings) {
			for _, f := range d.Findings {
				if f.Severity == diag.Error {
					c.unsafe = append(c.unsafe, f)
				}
			}
		}
	}
	// An object that is gone may be what a faulty document means.
	for _, h := range c.objects {
		if _, gone := before[h.object.Key]; gone && (vague[nil] || vague[h.object.Kind]) {
			objects = append(objects, h)
			delete(before, h.object.Key)
		}
	}
	c.objects = objects
}

func sortedPaths(files map[string]*content) []string { return slices.Sorted(maps.Keys(files)) }
