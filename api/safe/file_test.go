package safe

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestReadFile reads a regular file and a link to one. It refuses a named pipe and a device at once, and says what they
// are.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink("file", at("link")), syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("pipe", at("link-to-pipe")),
	} {
		must.Succeed(t, err)
	}
	for path, want := range map[string]string{
		at("file"): "", at("link"): "", at("pipe"): at("pipe") + " is a named pipe", at("link-to-pipe"): "is a named pipe",
		os.DevNull: "is a device", dir: "is a directory", at("none"): "no such file",
	} {
		text, err := ReadFile(path)
		if want == "" && (err != nil || string(text) != "x") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", path, text, err, want)
		}
	}
	if _, err := KeyPair(at("file"), at("pipe")); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Error(err)
	}
}
