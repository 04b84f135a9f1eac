package file

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Texts are files that were read once, and findings about reading them.
type Texts struct {
	data     map[string][]byte // by file name as in positions
	findings []diag.Diagnostic
	refusal  error // set by the source before it publishes the objects

	Namespace string // namespace of objects without one; default "default"
}

// Refusal returns why a server would not start with the texts, or nil. It is known once their source has ended.
func (t *Texts) Refusal() error {
	if t == nil {
		return nil
	}
	return t.refusal
}

// Of returns the bytes of a file by name.
func (t *Texts) Of(name string) ([]byte, bool) {
	if t == nil {
		return nil, false
	}
	data, known := t.data[name]
	return data, known
}

// Names returns the names of the files, sorted.
func (t *Texts) Names() []string { return slices.Sorted(maps.Keys(t.data)) }

// Stdin is the name of the text from the standard input.
const Stdin = "<stdin>"

// Read reads files with any extension, directories as a Source does, and the standard input for "-". A file that is
// given twice is read once. An unreadable file in a directory is a finding; an unreadable path in paths is an error.
func Read(paths []string, stdin io.Reader, l limits.Limits) (*Texts, error) {
	all := &Texts{data: map[string][]byte{}}
	for _, p := range paths {
		info, statErr := os.Stat(p)
		switch {
		case p == "-":
			data, err := io.ReadAll(io.LimitReader(stdin, l.FileSize+1))
			if err != nil {
				return nil, fmt.Errorf("read the standard input: %w", err)
			}
			all.data[Stdin] = data
		case statErr != nil:
			return nil, fmt.Errorf("read the configuration: %w", statErr)
		case info.IsDir():
			if err := all.readDir(p, l); err != nil {
				return nil, fmt.Errorf("read the configuration: %w", err)
			}
		case info.Mode()&os.ModeNamedPipe != 0: // such as a shell's <(COMMAND)
			data, err := readPipe(p, l.FileSize)
			if err != nil {
				return nil, fmt.Errorf("read the configuration: %w", err)
			}
			all.data[p] = data
		default:
			if err := all.readFile(filepath.Dir(p), filepath.Base(p), l); err != nil {
				return nil, fmt.Errorf("read the configuration: %s: %w", p, bare(err))
			}
		}
	}
	return all, nil
}

// readPipe reads a pipe until its writer closes it, and returns at most limit+1 bytes.
func readPipe(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

func (t *Texts) readFile(dir, name string, l limits.Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	data, _, _, err := read(root, name, l.FileSize)
	if err == nil {
		t.data[filepath.Join(dir, name)] = data
	}
	return err
}

func (t *Texts) readDir(dir string, l limits.Limits) error {
	found := list(Options{Dir: dir, Limits: l})
	if found.err != nil {
		return found.err
	}
	t.findings = append(t.findings, found.findings...)
	for _, e := range found.files {
		if err := t.readFile(dir, e.path, l); err != nil {
			t.findings = append(t.findings, diag.Diagnostic{
				Severity: diag.Error, Code: "Unreadable", File: filepath.Join(dir, e.path), Message: fmt.Sprintf("cannot be read: %v", bare(err)),
				Fix: "nothing in the file is used",
			})
		}
	}
	return nil
}

// NewTexts returns a Source of Texts, which never change.
func NewTexts(texts *Texts, opts Options) *Source {
	opts.Dir = ""
	s := newSource(opts)
	s.texts, s.rules.Review, s.rules.Namespace = texts, true, texts.Namespace
	return s
}

// runTexts calls the handler once, and waits for ctx.
func (s *Source) runTexts(ctx context.Context) error {
	for name, data := range s.texts.data {
		c := &content{}
		s.takeText(c, c.after(s.decode(name, data), data), data)
		s.files[name] = c
	}
	if err := s.begin(listing{findings: s.texts.findings}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
