package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Texts are read once, each file one time, and then judged as a directory is.
func TestTexts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": vs("a", "a"), "odd.txt": vs("b", "b"), "bad.yaml": vs("bad", "bad") + "  extra: 1\n",
		"unknown.yaml": "a: [\n"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	texts, err := Read(
		[]string{dir, filepath.Join(dir, "a.yaml"), "-", filepath.Join(dir, "odd.txt")}, strings.NewReader(vs("c", "c")), limits.Default(),
	)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	s := NewTexts(texts, Options{Handler: func(changes []kinds.Change) {
		for _, c := range changes {
			got = append(got, c.Object.Position)
		}
		cancel()
	}})
	must.Succeed(t, s.Run(ctx))
	if want := filepath.Join(dir, "a.yaml") + ":1:1 " + filepath.Join(dir, "odd.txt") + ":1:1 " + filepath.Join(dir, "bad.yaml") + ":1:1 " +
		Stdin + ":1:1"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if f := s.Findings(); len(f) != 2 || f[0].File != filepath.Join(dir, "bad.yaml") || f[0].Line != 11 || f[1].Code != "Syntax" {
		t.Errorf("findings %v", f)
	}
	if _, err := Read([]string{filepath.Join(dir, "none")}, nil, limits.Default()); err == nil {
		t.Error("a file that is not there is no error")
	}

	pipe, in, err := os.Pipe()
	must.Succeed(t, err)
	defer pipe.Close()
	_, err = in.WriteString(vs("d", "d"))
	must.Succeed(t, errors.Join(err, in.Close()))
	texts, err = Read([]string{fmt.Sprintf("/dev/fd/%d", pipe.Fd())}, nil, limits.Default())
	must.Succeed(t, err)
	if got := texts.Objects(); len(got) != 1 || got[0].GetName() != "d" {
		t.Errorf("a pipe: %v", got)
	}
}
