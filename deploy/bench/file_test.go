package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk: results that cannot be written leave those that were there, and nothing else.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	one := []section{{heading: "W1", body: "measured"}}
	if err := writeSections(path, one); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	failed := writeSections(path, append(one, section{heading: "W2", body: strings.Repeat("x", 1<<12)}))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if failed == nil || err != nil || string(after) != string(before) {
		t.Errorf("%v, %v: left %d bytes of %d", failed, err, len(after), len(before))
	}
	if files, err := filepath.Glob(path + "?*"); err != nil || len(files) > 0 {
		t.Errorf("%v, %v are left", err, files)
	}
}
