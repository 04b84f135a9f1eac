package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is for how long goroutines may take to end after a test. On a busy machine that is longer than goleak waits.
const patience = time.Minute

// Main runs the tests of a package, and ends the process. It fails if goroutines are left after the tests.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails a test if goroutines are left other than those to ignore.
func None(t testing.TB, ignore goleak.Option) {
	t.Helper()
	if err := find(patience, ignore); err != nil {
		t.Error(err)
	}
}

// find waits until no goroutine is left. After patience it returns an error that names the goroutines.
func find(patience time.Duration, options ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(end) {
			return err //nolint:wrapcheck // It says all.
		}
	}
}
