package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// timeout is the limit of a wait. It is far more than a busy machine needs.
const timeout = 3 * time.Minute

// longestPause is the longest pause of Eventually between two calls of ok. Many of these functions make an Envoy dump
// its configuration.
const longestPause = 100 * time.Millisecond

// Eventually waits until ok returns true, and logs how long that took. The test fails after timeout.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	for pause := 10 * time.Millisecond; !ok(); pause = min(pause*3/2, longestPause) {
		if time.Since(began) > timeout {
			t.Fatalf("not within %s: %s", timeout, what)
		}
		time.Sleep(pause)
	}
	t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
}

// LogTails logs the end of every log in the folder if the test has failed. It logs few lines, so that the failure stays
// near the end of the test's output.
func LogTails(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(content)), "\n")
			lines = lines[max(0, len(lines)-max(2, 15/len(names))):]
			for i, line := range lines {
				lines[i] = line[:min(len(line), 400)]
			}
			t.Logf("%s:\n%s", filepath.Base(name), strings.Join(lines, "\n"))
		}
	})
}
