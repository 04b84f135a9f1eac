package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const onFullDisk = "ISTIOD_LITE_TEST_FULL_DISK" // where TestFullDisk writes when it runs in a process of its own

// TestFullDisk: results that cannot be written leave those that were there, and nothing else.
func TestFullDisk(t *testing.T) {
	if path := os.Getenv(onFullDisk); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		must.Succeed(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: 1 << 10}))
		must.Succeed(t, writeSections(path, []section{{heading: "W1", body: "measured"}, {heading: "W2", body: strings.Repeat("x", 1<<12)}}))
		return
	}
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	must.Succeed(t, writeSections(path, []section{{heading: "W1", body: "measured"}}))
	before, err := os.ReadFile(path)
	must.Succeed(t, err)
	alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$") // the limit is of a whole process
	alone.Env = append(os.Environ(), onFullDisk+"="+path)
	said, failed := alone.CombinedOutput()
	after, err := os.ReadFile(path)
	if failed == nil || !strings.Contains(string(said), syscall.EFBIG.Error()) || err != nil || string(after) != string(before) {
		t.Errorf("%v, %v: left %d bytes of %d: %s", failed, err, len(after), len(before), said)
	}
	if files, err := filepath.Glob(path + "?*"); err != nil || len(files) > 0 {
		t.Errorf("%v, %v are left", err, files)
	}
}
