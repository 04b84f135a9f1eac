package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// childFolder is the variable by which the program of these tests rotates the root in a folder, without an end, and
// childTime is the variable with the time at which it begins, in RFC 3339.
const (
	childFolder = "STORE_TEST_FOLDER"
	childTime   = "STORE_TEST_TIME"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childFolder); path != "" {
		at, err := time.Parse(time.RFC3339Nano, os.Getenv(childTime))
		if err == nil {
			err = rotate(path, at)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// rotate takes one step after the other, and prints the time of each before it, and the root that signs after it. It
// returns what went wrong.
func rotate(path string, at time.Time) error {
	f := store.Folder{Path: path}
	for {
		fmt.Println("at", at.Format(time.RFC3339Nano))
		s, err := store.Step(context.Background(), f, options, at, true)
		if err != nil {
			return err
		}
		fmt.Println("root", hashOf(s.Signing.Certificate.Raw))
		at = s.Due(options)
	}
}

func hashOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// TestKilled kills a server at any point of its writes, again and again. The next one goes on with the last CA that was
// used, or with the step after: its roots have that CA's, and there is never a new CA that nobody trusts.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f := store.Folder{Path: path}
	draw := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // where a process is killed
	at, last, steps := start, "", 0
	note := func(line string) {
		what, text, _ := strings.Cut(line, " ")
		if what == "root" {
			last = text
			steps++
			return
		}
		var err error
		at, err = time.Parse(time.RFC3339Nano, text)
		must.Succeed(t, err)
	}
	step := 10 * time.Millisecond // about how long one step takes on this machine
	for round := range 40 {
		child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
		child.Env = append(os.Environ(), childFolder+"="+path, childTime+"="+at.Format(time.RFC3339Nano))
		out, err := child.StdoutPipe()
		must.Succeed(t, err)
		var problem strings.Builder
		child.Stderr = &problem
		must.Succeed(t, child.Start())
		lines := bufio.NewScanner(out)
		lines.Scan()
		note(lines.Text())
		if began := time.Now(); round == 0 {
			for steps == 0 && lines.Scan() {
				note(lines.Text())
			}
			step = time.Since(began)
		}
		time.Sleep(time.Duration(draw.Int64N(int64(2 * step))))
		_ = child.Process.Kill()
		for lines.Scan() {
			note(lines.Text())
		}
		_ = child.Wait()
		if problem.Len() > 0 {
			t.Fatalf("round %d: %s", round, problem.String())
		}
		if last == "" {
			continue
		}
		s, err := store.Step(t.Context(), f, options, at, false)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		var roots []string
		for _, c := range s.Roots() {
			roots = append(roots, hashOf(c.Raw))
		}
		if !slices.Contains(roots, last) {
			t.Fatalf("round %d: %s was in use, and the roots are %v", round, last, roots)
		}
		if _, err := s.Bundle(s.Signing.Certificate.NotBefore.Add(time.Hour)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if steps == 0 {
		t.Error("no step was taken")
	}
	s, err := store.Step(t.Context(), f, options, at, true)
	if err == nil {
		_, err = store.Step(t.Context(), f, options, s.Due(options), true)
	}
	must.Succeed(t, err)
	list, err := os.ReadDir(path)
	if err != nil || len(list) != 3 { // the lock, the link, and the version that it names
		t.Errorf("what is left: %v, %v", list, err)
	}
}
