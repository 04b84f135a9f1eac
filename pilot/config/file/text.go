package file

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Text is a file that was read once.
type Text struct {
	Name string // for positions
	Data []byte
}

// Texts are files that were read once, and what was wrong with reading them.
type Texts struct {
	List     []Text
	Findings []diag.Diagnostic
}

// Of returns the bytes of a file.
func (t *Texts) Of(name string) ([]byte, bool) {
	if t == nil {
		return nil, false
	}
	i := slices.IndexFunc(t.List, func(x Text) bool { return x.Name == name })
	if i < 0 {
		return nil, false
	}
	return t.List[i].Data, true
}

// Stdin is the name of what is read from the standard input.
const Stdin = "<stdin>"

// Read reads files, whatever their names end with, directories as a Source does, and the standard input, which is "-". Each file counts once. What is wrong with a
// file in a directory is a finding, with a path that was given an error.
func Read(paths []string, stdin io.Reader, l limits.Limits) (*Texts, error) {
	all := &Texts{}
	for _, p := range paths {
		var found []Text
		info, statErr := os.Stat(p)
		switch {
		case p == "-":
			data, err := io.ReadAll(io.LimitReader(stdin, l.FileSize+1))
			if err != nil {
				return nil, fmt.Errorf("read the standard input: %w", err)
			}
			found = []Text{{Stdin, data}}
		case statErr != nil:
			return nil, fmt.Errorf("read the configuration: %w", statErr)
		case info.IsDir():
			inside, more, err := readDir(p, l)
			if err != nil {
				return nil, fmt.Errorf("read the configuration: %w", err)
			}
			found = inside
			all.Findings = append(all.Findings, more...)
		default:
			t, err := readFile(filepath.Dir(p), filepath.Base(p), l)
			if err != nil {
				return nil, fmt.Errorf("read the configuration: %s: %w", p, bare(err))
			}
			found = []Text{t}
		}
		for _, t := range found {
			if _, known := all.Of(t.Name); !known {
				all.List = append(all.List, t)
			}
		}
	}
	return all, nil
}

func readFile(dir, name string, l limits.Limits) (Text, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Text{}, err
	}
	defer root.Close()
	data, _, _, err := read(root, name, l.FileSize)
	return Text{filepath.Join(dir, name), data}, err
}

func readDir(dir string, l limits.Limits) (texts []Text, findings []diag.Diagnostic, err error) {
	found := list(Options{Dir: dir, Limits: l})
	if found.err != nil {
		return nil, nil, found.err
	}
	findings = found.findings
	for _, e := range found.files {
		t, err := readFile(dir, e.path, l)
		if err != nil {
			findings = append(findings, diag.Diagnostic{
				Severity: diag.Error, Code: "Unreadable", File: filepath.Join(dir, e.path), Message: fmt.Sprintf("cannot be read: %v", bare(err)), Fix: "nothing in the file is used",
			})
			continue
		}
		texts = append(texts, t)
	}
	return texts, findings, nil
}

// NewTexts returns a Source of files that were read before, which never change.
func NewTexts(texts *Texts, opts Options) *Source {
	opts.Dir = ""
	s := newSource(opts)
	s.texts = texts
	return s
}

// runTexts hands everything to the handler, and waits.
func (s *Source) runTexts(ctx context.Context) error {
	for _, t := range s.texts.List {
		c := &content{}
		c.takeText(s.decode(t.Name, t.Data), t.Data)
		s.files[t.Name] = c
	}
	if err := s.begin(listing{findings: s.texts.Findings}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
