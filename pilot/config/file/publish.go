package file

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

var errEmpty = errors.New("it holds no config files any more")

// claim is an object and its position.
type claim struct {
	object    *kinds.Object
	file      string
	line, col int
	missing   bool // the file is missing, which may be temporary
}

// publish calls the handler with the changes since the last call, and publishes the findings.
func (s *Source) publish(found listing) {
	objects, findings := s.merge(found)
	changes := diff(s.published, objects)
	s.published = objects
	if len(changes) > 0 || !s.synced.Load() {
		s.opts.Handler(changes)
	}
	s.report(findings)
}

// merge returns the objects of all files, and all findings. If several documents define one object, the one in the file
// that is in force takes precedence, or else the first.
func (s *Source) merge(found listing) (map[kinds.Key]claim, []diag.Diagnostic) {
	findings := found.findings
	if found.err != nil {
		findings = append(findings, diag.Diagnostic{
			Severity: diag.Error, Code: "NoDirectory", File: s.opts.Dir,
			Message: fmt.Sprintf("the config directory cannot be used: %v", bare(found.err)),
			Fix:     "what was last read from it stays in force",
		})
	}
	objects := map[kinds.Key]claim{}
	var lost []claim
	paths := sortedPaths(s.files)
	// A missing file comes last, because it may just have been renamed.
	for _, missing := range []bool{false, true} {
		for _, path := range paths {
			c := s.files[path]
			if c.missing != missing {
				continue
			}
			findings = append(findings, c.findings...)
			for i := range c.objects {
				h := &c.objects[i]
				for _, o := range []**kinds.Object{&h.Object, &h.Beside} {
					if *o == nil {
						continue
					}
					key := (*o).Key
					published := s.published[key]
					if old := published.object; old != nil && old != *o && config.Equal(old, *o) {
						*o = old
					}
					this := claim{*o, path, h.line, h.col, missing}
					if other, dup := objects[key]; dup {
						if path == published.file && other.file != path && !missing {
							this, objects[key] = other, this
						}
						lost = append(lost, this)
						continue
					}
					objects[key] = this
				}
			}
		}
	}
	for _, l := range lost {
		if !l.missing && !l.object.IsLastGood() {
			findings = append(findings, s.duplicate(l, objects[l.object.Key]))
		}
	}
	findings = append(findings, s.stay(found, objects)...)
	return objects, append(findings, s.withoutController(objects)...)
}

// stay adds to objects the ones that restrict something and were in force, are gone from all files, and may have been
// moved into an unreadable one. It returns a finding for each file that has lost such objects.
func (s *Source) stay(found listing, objects map[kinds.Key]claim) []diag.Diagnostic {
	hidden := map[*kinds.Kind]bool{nil: len(found.unknown) > 0}
	for _, c := range s.files {
		maps.Copy(hidden, c.hidden)
	}
	lost := map[string][]string{}
	for key, c := range s.published {
		_, there := objects[key]
		if key.IsLastGood() && !there { // it is removed together with the next version
			written := key
			written.Name = strings.TrimSuffix(key.Name, kinds.LastGood)
			_, there = objects[written]
		}
		if there || !hidden[nil] && !hidden[key.Kind] || !s.restricts(key) {
			continue
		}
		objects[key] = c
		lost[c.file] = append(lost[c.file], key.String())
	}
	const mostNames = 5
	var findings []diag.Diagnostic
	for _, file := range slices.Sorted(maps.Keys(lost)) {
		names := lost[file]
		slices.Sort(names)
		if len(names) > mostNames {
			names = append(names[:mostNames], "more")
		}
		findings = append(findings, diag.Diagnostic{
			Severity: diag.Warning, Code: "MayBeMoved", File: filepath.Join(s.opts.Dir, file),
			Message: "gone from the file, and still in force, for they may be in a file that cannot be read: " + strings.Join(names, ", "),
			Fix:     "mend the files and documents that other findings say cannot be read",
		})
	}
	return findings
}

// restricts reports whether a server must not run without an object.
func (s *Source) restricts(k kinds.Key) bool { return validation.Restricts(k.Kind) || s.opts.vital(k) }

// decides reports whether an object restricts something or, as a ReferenceGrant, permits something.
func (s *Source) decides(k kinds.Key) bool {
	return s.restricts(k) || k.Kind.Group == kinds.ReferenceGrant.Group
}

// versions returns a finding for each object that restricts or permits something and is defined twice with different
// content. A running server keeps the first version, but a server that starts does not know which one was first.
func (s *Source) versions() (list []diag.Diagnostic) {
	first := map[kinds.Key]claim{}
	for _, path := range sortedPaths(s.files) {
		for _, h := range s.files[path].objects {
			if h.Object == nil || h.Object.IsLastGood() || !s.decides(h.Object.Key) {
				continue
			}
			this := claim{object: h.Object, file: path, line: h.line, col: h.col}
			switch other, dup := first[h.Object.Key]; {
			case !dup:
				first[h.Object.Key] = this
			case !config.Equal(other.object, h.Object):
				list = append(list, s.duplicate(this, other))
			}
		}
	}
	return list
}

func (s *Source) duplicate(lost, wins claim) diag.Diagnostic {
	fix := "remove one of the two"
	switch {
	case s.decides(lost.object.Key) && !config.Equal(lost.object, wins.object):
		fix += ": a server does not start with both"
	case lost.file < wins.file:
		fix += ", because after a restart this one would be in force"
	}
	return diag.Diagnostic{
		Severity: diag.Error, Code: "DuplicateObject", Object: lost.object.Key.String(), File: filepath.Join(s.opts.Dir, lost.file),
		Line: lost.line, Column: lost.col, Fix: fix,
		Message: fmt.Sprintf(
			"the object is already defined at %s:%d:%d, which is in force", filepath.Join(s.opts.Dir, wins.file), wins.line, wins.col,
		),
	}
}

func diff(before, after map[kinds.Key]claim) []kinds.Change {
	var changes []kinds.Change
	for key, now := range after {
		if before[key].object != now.object {
			changes = append(changes, kinds.Change{Key: key, Object: now.object})
		}
	}
	for key := range before {
		if after[key].object == nil {
			changes = append(changes, kinds.Change{Key: key})
		}
	}
	config.Sort(changes)
	return changes
}

// bare returns an error without the path, which the finding has.
func bare(err error) error {
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}
