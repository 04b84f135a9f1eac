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

// How long a file that may be in the middle of a write must be unchanged before it is read.
const (
	restInPlace    = 100 * time.Millisecond // written in place
	restUnfinished = 500 * time.Millisecond // shorter than before, without a final newline, not parsable, or with an object gone or shorter
	restEmpty      = 2 * time.Second
	restMissing    = 100 * time.Millisecond
	restReplaced   = 20 * time.Millisecond // removed since the directory was listed, so probably being replaced

	// Bounds of the wait for a file that keeps changing: boundDoubt if it seems complete, boundLast in any case. A
	// deletion does not wait longer for writes.
	boundDoubt = 2 * time.Second
	boundLast  = 10 * time.Second

	restJudged = 10 * time.Second // how long schemas are kept after the last change

	coarseClock = 2 * time.Second // a file may change within this time without a new modification time, for example on NFS
)

// content is the state of one file.
type content struct {
	read      watchfile.Stamp // stamp of the last bytes that were accepted or finally rejected
	readAt    time.Time
	hash      uint64
	size      int
	objects   []held
	templates []validation.Template
	findings  []diag.Diagnostic
	unsafe    []diag.Diagnostic    // errors that the first load must not ignore
	hidden    map[*kinds.Kind]bool // kinds of objects that may be in unreadable parts; nil for any kind

	// The fields below are zero unless the file may be in the middle of a write.
	doubt      watchfile.Stamp // stamp of the last look
	doubtSince time.Time       // time of the first look with that stamp
	doubtFirst time.Time       // begin of the wait

	missing      bool
	missingSince time.Time
}

// held is the state of an object in a document, and the document's position.
type held struct {
	config.Versions
	key       kinds.Key
	line, col int
	lines     int // length of its document when it was read, with the separator
}

// reading is a decoded text, and the objects in force once it has been taken.
type reading struct {
	validation.Result
	objects []held
	instead []string // what is in force instead of each unusable document
}

// scan updates the files. If recheck is not 0, a file must be looked at again after that time.
func (s *Source) scan() (found listing, recheck time.Duration) {
	if !s.judged.IsZero() && time.Since(s.judged) > restJudged {
		s.rules.Schemas.Forget()
		s.judged = time.Time{}
	}
	looked := time.Now() // a file may change during the scan
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
	writing := false // a file is being written: missing objects may be about to appear in it
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
		// While files are replaced, a listing may miss a file that exists all the time.
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

// update reads a file if it has changed, and returns how long to wait before it can be read, or 0.
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

// settle ends the wait.
func (c *content) settle() {
	c.doubt, c.doubtSince, c.doubtFirst = watchfile.Stamp{}, time.Time{}, time.Time{}
}

// wait decides whether the file is being written, from the stamps before and after a read that began at a time. It
// returns how long to wait until the next look, or 0.
func (c *content) wait(began time.Time, before, after watchfile.Stamp, data []byte, decode func() reading) time.Duration {
	fresh := c.readAt.IsZero()
	last := c.read
	if c.doubt != (watchfile.Stamp{}) {
		last = c.doubt
	}
	// A replacement is complete, unless it was written there after the old file had been removed.
	replaced := last != (watchfile.Stamp{}) && !last.SameFile(after) && !c.missing && before == after
	empties := len(data) == 0 && len(c.objects) > 0
	if replaced && !empties || fresh && before == after && len(data) == 0 {
		return 0
	}
	if c.doubtFirst.IsZero() {
		c.doubtFirst = began
	}
	if c.doubt != after {
		c.doubt, c.doubtSince = after, time.Now() // the read may have taken long
		// A file that was not modified for long is not being written.
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

// read returns a file's bytes, at most limit+1, and its stamps before and after reading.
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

// decode decodes a file. A panic of the decoder affects only this file.
func (s *Source) decode(file string, data []byte) (r validation.Result) {
	name := filepath.Join(s.opts.Dir, file)
	s.judged = time.Now()
	if err := safe.Do("decode config", func() { r = s.rules.Decode(name, data) }); err != nil {
		r = validation.Result{
			Broken: &diag.Diagnostic{Severity: diag.Error, Code: "Internal", File: name, Message: err.Error(), Fix: "report it, with the file"},
		}
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
	if s.texts != nil { // only analysis: a text without a known object is a finding
		vital = validation.NamesRestricting(data, s.rules.Vital...)
	}
	c.take(r, vital)
}

// take puts a decoded text into force. For each unusable document, the objects in force are decided by after.
func (c *content) take(r reading, vital bool) {
	c.unsafe, c.hidden = nil, nil
	if r.Broken != nil {
		b := *r.Broken
		if b.Code == "Syntax" { // the fix is about a running server
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

// instead returns what is in force while the file is unusable.
func (c *content) instead() string {
	if len(c.objects) == 0 {
		return "nothing in the file is used"
	}
	return "the file's last good content stays in force"
}

// refuse changes the fixes of findings that keep a server from starting.
func (c *content) refuse() {
	c.findings = slices.Clone(c.findings)
	for _, u := range c.unsafe {
		for i, f := range c.findings {
			same := u
			same.Fix = f.Fix
			if f == same && f != u { // f is u with a longer fix
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

// loses reports whether an object would be gone or shorter, as in the middle of a write.
func (c *content) loses(objects []held) bool {
	after := map[kinds.Key]int{} // length of the longest document of each object
	for _, h := range objects {
		after[h.key] = max(after[h.key], h.lines)
	}
	return slices.ContainsFunc(c.objects, func(h held) bool {
		now, there := after[h.key]
		return !there || now < h.lines
	})
}

// after returns the objects in force once a text has been taken.
func (c *content) after(r validation.Result, data []byte) reading {
	before := map[kinds.Key]held{}
	for _, h := range c.objects {
		if _, dup := before[h.key]; !dup {
			before[h.key] = h
		}
	}
	out := reading{Result: r, instead: make([]string, len(r.Documents))}
	vague := map[*kinds.Kind]bool{} // kinds of documents that do not name their object; nil for any kind
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
	// A missing object may be in a document that does not name its object.
	for _, h := range c.objects {
		if _, gone := before[h.key]; gone && (vague[nil] || vague[h.key.Kind]) {
			out.objects = append(out.objects, h)
			delete(before, h.key)
		}
	}
	return out
}

func sortedPaths(files map[string]*content) []string { return slices.Sorted(maps.Keys(files)) }
