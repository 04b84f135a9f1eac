package pages

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPagesAreReleased checks that the program's file takes less memory after Release, and that the program runs
// on.
func TestPagesAreReleased(t *testing.T) {
	before := fileMemory(t)
	must.Succeed(t, Release())
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
}

// fileMemory returns the resident memory of this process that files back, in kB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must.Succeed(t, err)
	found := regexp.MustCompile(`(?m)^RssFile:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no RssFile:\n%s", status)
	}
	kB, err := strconv.Atoi(string(found[1]))
	must.Succeed(t, err)
	return kB
}
