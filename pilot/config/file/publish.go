package file

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

var errEmpty = errors.New("it holds no config files any more")

// publish tells the handler what has changed since the last time, and makes the findings known.
func (s *Source) publish(found listing) {
	findings := found.findings
	if found.err != nil {
		findings = append(findings, diag.Diagnostic{
			Severity: diag.Error, Code: "NoDirectory", File: s.opts.Dir, Message: fmt.Sprintf("the config directory cannot be used: %v", bare(found.err)),
			Fix: "all that was read before stays in force",
		})
	}
	objects := map[kinds.Key]*kinds.Object{}
	where := map[kinds.Key]string{}
	paths := sortedPaths(s.files)
	// A file that is gone for a moment speaks last: it may just have been renamed.
	for _, missing := range []bool{false, true} {
		for _, path := range paths {
			c := s.files[path]
			if c.missing != missing {
				continue
			}
			findings = append(findings, c.findings...)
			for i, h := range c.objects {
				key := h.object.Key
				if _, dup := objects[key]; dup {
					if !missing {
						findings = append(findings, diag.Diagnostic{
							Severity: diag.Error, Code: "DuplicateObject", Object: key.String(), File: filepath.Join(s.opts.Dir, path), Line: h.line, Column: h.col,
							Message: "the object is already defined at " + where[key] + ", which is the one that counts", Fix: "remove one of the two",
						})
					}
					continue
				}
				if old := s.published[key]; old != nil && old != h.object && config.Equal(old, h.object) {
					c.objects[i].object = old
				}
				objects[key] = c.objects[i].object
				where[key] = fmt.Sprintf("%s:%d:%d", filepath.Join(s.opts.Dir, path), h.line, h.col)
			}
		}
	}
	changes := diff(s.published, objects)
	s.published = objects
	if len(changes) > 0 || !s.synced.Load() {
		s.opts.Handler(changes)
	}
	s.report(findings)
}

func diff(before, after map[kinds.Key]*kinds.Object) []kinds.Change {
	var changes []kinds.Change
	for key, o := range after {
		if before[key] != o {
			changes = append(changes, kinds.Change{Key: key, Object: o})
		}
	}
	for key := range before {
		if after[key] == nil {
			changes = append(changes, kinds.Change{Key: key})
		}
	}
	config.Sort(changes)
	return changes
}

// bare is an error without the path, which the finding names anyway.
func bare(err error) error {
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

func compare(a, b diag.Diagnostic) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Fix, b.Fix),
	)
}
