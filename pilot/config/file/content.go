package file

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// How long what looks like a write in progress is waited for, after the last sign of it.
const (
	restInPlace    = 100 * time.Millisecond // the same file, written into
	restUnfinished = 500 * time.Millisecond // shorter than before, without a newline at the end, not to be parsed, or with less in it
	restEmpty      = 2 * time.Second
	restMissing    = 100 * time.Millisecond
	restReplaced   = 20 * time.Millisecond // gone since it was listed: it is being replaced

	// A file that never rests is used after boundDoubt if it seems whole, after boundLast in any case. Nor does a
	// deletion wait longer for writes.
	boundDoubt = 2 * time.Second
	boundLast  = 10 * time.Second

	restJudged = 10 * time.Second // after the last change, what files are judged by is kept

	coarseClock = 2 * time.Second // a file may change again within this time and keep its time of change, on NFS for one
)

// content is what one file holds.
type content struct {
	read      watchfile.Stamp // of the bytes that are in force; of those that were refused for good too
	readAt    time.Time
	hash      uint64
	size      int
	objects   []held
	templates []validation.Template
	findings  []diag.Diagnostic
	unsafe    []diag.Diagnostic    // errors of the file that the first load must not pass over
	hidden    map[*kinds.Kind]bool // kinds of objects that the file may hold and that cannot be read; nil is any kind

	// While the file is waited for, and else zero.
	doubt      watchfile.Stamp // the last look at it
	doubtSince time.Time       // when it first looked so
	doubtFirst time.Time       // when the waiting began

	missing      bool
	missingSince time.Time
}

// held is what is in force of a document, and where that is written.
type held struct {
	config.Versions
	key       kinds.Key
	line, col int
	lines     int // of its document when it was read, with what separates it from the next
}

// reading is a text, and what is in force once it has been taken.
type reading struct {
	validation.Result
	objects []held
	instead []string // what is in force instead of each document that cannot be used
}

// scan brings files up to date. If recheck is not 0, something is waited for, and scan should be called again after
// that time.
func (s *Source) scan() (found listing, recheck time.Duration) {
	if !s.judged.IsZero() && time.Since(s.judged) > restJudged {
		s.rules.Schemas.Forget()
		s.judged = time.Time{}
	}
	looked := time.Now() // A file may change while the scan goes on.
	found = list(s.opts)
	if found.err == nil && len(found.files) == 0 && len(s.files) > 0 && len(found.unknown) == 0 {
		found.err = errEmpty
	}
	wait := func(d time.Duration) {
		if d > 0 && (recheck == 0 || d < recheck) {
			recheck = d
		}
	}
	s.watch.WatchDirectories(found.dirs)
	if found.err != nil {
		return found, 0
	}
	root, err := os.OpenRoot(s.opts.Dir)
	if err != nil {
		found.err = err
		return found, 0
	}
	defer root.Close()
	present := make(map[string]bool, len(found.files))
	writing := false // a file is: what is gone elsewhere may be about to turn up in it
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
		writing = writing || left > 0
	}
	for file, c := range s.files {
		if present[file] {
			c.missing = false
			continue
		}
		if found.hides(file) {
			continue
		}
		// While files are exchanged, a listing may lack one that is there all the time.
		if _, listed := found.dirs[filepath.Join(s.opts.Dir, path.Dir(file))]; listed {
			if info, err := root.Stat(file); err == nil && info.Mode().IsRegular() {
				c.missing = false
				continue
			}
		}
		if !c.missing {
			c.missing, c.missingSince = true, time.Now()
		}
		rest := restMissing
		if writing {
			rest = boundDoubt
		}
		if left := rest - looked.Sub(c.missingSince); left > 0 {
			wait(min(left, restMissing))
		} else {
			delete(s.files, file)
		}
	}
	return found, recheck
}

// update reads a file if it has changed, and returns how long to wait before it can be judged, or 0.
func (s *Source) update(root *os.Root, c *content, e entry) time.Duration {
	fresh := c.readAt.IsZero()
	if !fresh && c.read == e.stamp && c.readAt.Sub(e.stamp.Modified) > coarseClock {
		c.settle()
		return 0
	}
	now := time.Now()
	data, before, after, err := read(root, e.path, s.opts.Limits.FileSize)
	if err != nil {
		if os.IsNotExist(err) {
			return restReplaced
		}
		c.read, c.readAt, c.hash = watchfile.Stamp{}, now, 0
		c.settle()
		c.findings = []diag.Diagnostic{{
			Severity: diag.Error, Code: "Unreadable", File: filepath.Join(s.opts.Dir, e.path), Message: fmt.Sprintf("cannot be read: %v", bare(err)),
			Fix: "make it readable, or remove it" + keptUntil,
		}}
		c.unsafe, c.hidden = c.findings, map[*kinds.Kind]bool{nil: true}
		return 0
	}
	hash := xxhash.Sum64(data)
	if !fresh && hash == c.hash && len(data) == c.size && c.read != (watchfile.Stamp{}) {
		c.read, c.readAt = after, now
		c.settle()
		c.findings = slices.DeleteFunc(c.findings, isEmptied)
		return 0
	}
	decode := sync.OnceValue(func() reading { return c.after(s.decode(e.path, data), data) })
	if left := c.wait(now, before, after, data, decode); left > 0 {
		if len(data) == 0 && !slices.ContainsFunc(c.findings, isEmptied) {
			c.findings = append(slices.Clone(c.findings), emptied(filepath.Join(s.opts.Dir, e.path)))
		}
		return left
	}
	c.settle()
	c.read, c.readAt, c.hash, c.size = after, now, hash, len(data)
	s.takeText(c, decode(), data)
	return 0
}

func emptied(file string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "Emptied", File: file, Message: "the file has become empty, as it does while it is written",
		Fix: fmt.Sprintf("its last good content stays in force until it has been empty for %v", restEmpty),
	}
}

func isEmptied(d diag.Diagnostic) bool { return d.Code == "Emptied" }

// settle ends the waiting.
func (c *content) settle() {
	c.doubt, c.doubtSince, c.doubtFirst = watchfile.Stamp{}, time.Time{}, time.Time{}
}

// wait judges whether a write is in progress, from the stamps before and after a read that began at a time, and returns
// how long to wait until the next look, or 0.
func (c *content) wait(began time.Time, before, after watchfile.Stamp, data []byte, decode func() reading) time.Duration {
	fresh := c.readAt.IsZero()
	last := c.read
	if c.doubt != (watchfile.Stamp{}) {
		last = c.doubt
	}
	// What takes a file's place is whole, unless it was written there after the old one had gone.
	replaced := last != (watchfile.Stamp{}) && !last.SameFile(after) && !c.missing && before == after
	empties := len(data) == 0 && len(c.objects) > 0
	if replaced && !empties || fresh && before == after && len(data) == 0 {
		return 0
	}
	if c.doubtFirst.IsZero() {
		c.doubtFirst = began
	}
	if c.doubt != after {
		c.doubt, c.doubtSince = after, time.Now() // The read may have taken long.
		// A file that nobody has touched for long is not being written.
		if old := began.Sub(after.Modified); fresh && old > 0 {
			c.doubtSince = began.Add(-min(old, restEmpty))
		}
	}
	quiet, total := max(0, began.Sub(c.doubtSince)), began.Sub(c.doubtFirst)
	if empties {
		return max(0, restEmpty-quiet)
	}
	rest := restInPlace
	switch {
	case before != after || len(data) == 0 || data[len(data)-1] != '\n' || len(data) < c.size:
		rest = restUnfinished
	case fresh:
		rest = 0
	}
	if quiet < rest && total < boundDoubt {
		return min(rest-quiet, boundDoubt-total)
	}
	if quiet >= restUnfinished || total >= boundLast {
		return 0
	}
	if r := decode(); before != after || r.Broken != nil || c.loses(r.objects) {
		return restUnfinished - quiet
	}
	return 0
}

// read returns a file's bytes, at most one more than limit, and its stamps before and after reading.
func read(root *os.Root, file string, limit int64) (data []byte, before, after watchfile.Stamp, err error) {
	// Without O_NONBLOCK, opening a FIFO that took the file's place would wait for a writer.
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, watchfile.Stamp{}, watchfile.Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, watchfile.Stamp{}, watchfile.Stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, watchfile.Stamp{}, watchfile.Stamp{}, fmt.Errorf("not a regular file")
	}
	before = watchfile.StampOf(info)
	if data, err = io.ReadAll(io.LimitReader(f, limit+1)); err != nil {
		return nil, watchfile.Stamp{}, watchfile.Stamp{}, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, watchfile.Stamp{}, watchfile.Stamp{}, err
	}
	return data, before, watchfile.StampOf(info), nil
}

// decode never panics: a fault of the decoder costs one file.
func (s *Source) decode(file string, data []byte) (r validation.Result) {
	name := filepath.Join(s.opts.Dir, file)
	s.judged = time.Now()
	if err := safe.Do("decode config", func() { r = s.rules.Decode(name, data) }); err != nil {
		r = validation.Result{Broken: &diag.Diagnostic{Severity: diag.Error, Code: "Internal", File: name, Message: err.Error(), Fix: "report it, with the file"}}
	}
	for i := range r.Documents {
		d := &r.Documents[i]
		d.Vital = d.Vital || s.opts.vital(d.Key)
	}
	return r
}

// takeText puts the text of a file into force.
func (s *Source) takeText(c *content, r reading, data []byte) {
	vital := r.MayRestrict(data, s.rules.Vital...)
	if s.texts != nil { // nothing is served: a text of which nothing is known is a finding
		vital = validation.NamesRestricting(data, s.rules.Vital...)
	}
	c.take(r, vital)
}

// take puts what was decoded into force, and for each document that cannot be used what it said before.
func (c *content) take(r reading, vital bool) {
	c.unsafe, c.hidden = nil, nil
	if r.Broken != nil {
		b := *r.Broken
		if b.Code == "Syntax" { // its fix is about a server that has read the file before
			b.Fix = ""
		}
		if vital {
			c.unsafe = append(c.unsafe, b)
			c.hidden = map[*kinds.Kind]bool{nil: true}
		}
		b.Fix = join(b.Fix, "until it is mended, "+c.instead())
		c.findings = []diag.Diagnostic{b}
		return
	}
	c.objects, c.templates = r.objects, r.Templates
	c.findings, c.hidden = nil, map[*kinds.Kind]bool{}
	for i, d := range r.Documents {
		if d.Vital && d.Object == nil && d.Key.Name == "" {
			c.hidden[d.Key.Kind] = true
		}
		for _, f := range d.Findings {
			if f.Severity == diag.Error {
				if d.Vital {
					c.unsafe = append(c.unsafe, f)
				}
				f.Fix = join(f.Fix, "until it is mended, "+r.instead[i])
			}
			c.findings = append(c.findings, f)
		}
	}
}

// instead returns what is in force while the file cannot be used.
func (c *content) instead() string {
	if len(c.objects) == 0 {
		return "nothing in the file is used"
	}
	return "the file's last good content stays in force"
}

// refuse changes the findings that keep a server from starting: they say so, and not what would be in force.
func (c *content) refuse() {
	c.findings = slices.Clone(c.findings)
	for _, u := range c.unsafe {
		for i, f := range c.findings {
			same := u
			same.Fix = f.Fix
			if f == same && f != u { // f is u with an addition to its fix
				c.findings[i].Fix = join(u.Fix, "until it is mended, a server does not start with the file")
			}
		}
	}
}

func join(fix, more string) string {
	if fix == "" {
		return more
	}
	return fix + "; " + more
}

// loses reports whether an object would be gone, or be written in fewer lines, as it is while a file is being written.
func (c *content) loses(objects []held) bool {
	after := map[kinds.Key]int{} // the lines of the longest
	for _, h := range objects {
		after[h.key] = max(after[h.key], h.lines)
	}
	return slices.ContainsFunc(c.objects, func(h held) bool {
		now, there := after[h.key]
		return !there || now < h.lines
	})
}

// after returns what is in force once a text has been taken.
func (c *content) after(r validation.Result, data []byte) reading {
	before := map[kinds.Key]held{}
	for _, h := range c.objects {
		if _, dup := before[h.key]; !dup {
			before[h.key] = h
		}
	}
	out := reading{Result: r, instead: make([]string, len(r.Documents))}
	vague := map[*kinds.Kind]bool{} // kinds of documents that do not name their object; nil is any
	lines := bytes.Count(data, []byte{'\n'}) + 1
	for i, d := range r.Documents {
		end := lines
		if i+1 < len(r.Documents) {
			end = r.Documents[i+1].Line
		}
		if d.Object == nil && d.Key.Name == "" {
			vague[d.Key.Kind] = true
			out.instead[i] = "the document is not used, and objects that the file held before stay in force"
			continue
		}
		next, force := before[d.Key].After(d, func(*kinds.Object) {})
		if out.instead[i] = force.Instead; next.Object != nil {
			out.objects = append(out.objects, held{next, d.Key, d.Line, d.Column, end - d.Line})
		}
		delete(before, d.Key)
	}
	// An object that is gone may be what a faulty document means.
	for _, h := range c.objects {
		if _, gone := before[h.key]; gone && (vague[nil] || vague[h.key.Kind]) {
			out.objects = append(out.objects, h)
			delete(before, h.key)
		}
	}
	return out
}

func sortedPaths(files map[string]*content) []string { return slices.Sorted(maps.Keys(files)) }
