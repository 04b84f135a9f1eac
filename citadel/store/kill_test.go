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
)

// childFolder is the variable by which the program of these tests rotates the root in a folder, without an end.
const childFolder = "STORE_TEST_FOLDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFolder); path != "" {
		fmt.Fprintln(os.Stderr, rotate(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// rotate takes one step after the other, and prints the root that signs after each. It returns what went wrong.
func rotate(path string) error {
	f := store.Folder{Path: path}
	fmt.Println("begins")
	s, err := store.Step(context.Background(), f, options, start, true)
	for err == nil {
		fmt.Println(hashOf(s.Signing.Certificate.Raw))
		s, err = store.Step(context.Background(), f, options, s.Due(options), true)
	}
	return err
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
	last, steps := "", 0
	for round := range 40 {
		child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
		child.Env = append(os.Environ(), childFolder+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var problem strings.Builder
		child.Stderr = &problem
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		time.Sleep(time.Duration(draw.Int64N(int64(10 * time.Millisecond))))
		_ = child.Process.Kill()
		for lines.Scan() {
			last = lines.Text()
			steps++
		}
		_ = child.Wait()
		if problem.Len() > 0 {
			t.Fatalf("round %d: %s", round, problem.String())
		}
		if last == "" {
			continue
		}
		s, err := store.Step(t.Context(), f, options, start, false)
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
	s, err := store.Step(t.Context(), f, options, start, true)
	if err == nil {
		_, err = store.Step(t.Context(), f, options, s.Due(options), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(path)
	if err != nil || len(list) != 3 { // the lock, the link, and the version that it names
		t.Errorf("what is left: %v, %v", list, err)
	}
}
