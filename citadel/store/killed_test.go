package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/store"
)

// What a process of this test is told: the folder in which it rotates until it is killed, and the time to begin with.
const (
	folderVar = "ROTATES_IN"
	timeVar   = "ROTATES_FROM"
)

// TestKilled kills a server at any point of its first start and of the steps of rotations, which follow each other
// without a pause. The next one has the CA that was there, or one step further: a CA signs only by a root that was
// handed out before.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(folderVar); dir != "" {
		now, err := time.Parse(time.RFC3339Nano, os.Getenv(timeVar))
		if err != nil {
			t.Fatal(err)
		}
		rotate(t, store.Folder{Path: dir}, now)
	}
	dir := filepath.Join(t.TempDir(), "state")
	f := store.Folder{Path: dir}
	var last []string // what was said last
	due := func() string {
		if last == nil {
			return start.Format(time.RFC3339Nano)
		}
		return last[len(last)-1]
	}
	for round := range 24 {
		if round%6 == 0 { // anew
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			last = nil
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilled$")
		cmd.Env = append(os.Environ(), folderVar+"="+dir, timeVar+"="+due())
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range round%6 + 1 { // and then it is within a step
			if !lines.Scan() {
				t.Fatalf("round %d: it ended", round)
			}
			last = follows(t, round, last, strings.Fields(lines.Text()))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it was killed
			last = follows(t, round, last, strings.Fields(lines.Text()))
		}
		_ = cmd.Wait()
		now, err := time.Parse(time.RFC3339Nano, due())
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Step(t.Context(), f, options, now, false)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		last = follows(t, round, last, said(s))
	}
}

// follows checks what a server says after another one, or after itself, and returns it.
func follows(t *testing.T, round int, before, now []string) []string {
	t.Helper()
	if len(now) < 3 || before != nil && !slices.Contains(before[1:], now[0]) {
		t.Fatalf("round %d: after %q it is %q: a CA signs whose root nobody has", round, before, now)
	}
	return now
}

// said returns the serial number of the CA that signs, those of the roots, and when the next step is due.
func said(s rotation.State) []string {
	list := []string{s.Signing.Certificate.SerialNumber.String()}
	for _, r := range s.Roots() {
		list = append(list, r.SerialNumber.String())
	}
	return append(list, s.Due(options).Format(time.RFC3339Nano))
}

// rotate takes one step after the other, each when it is due, and says what is in force. It does not return.
func rotate(t *testing.T, f store.Folder, now time.Time) {
	for {
		s, err := store.Step(context.Background(), f, options, now, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Println(strings.Join(said(s), " ")); err != nil {
			t.Fatal(err)
		}
		now = s.Due(options)
	}
}
