package pages

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestPagesAreReleased checks that the program's file takes less memory after Release, and that the program runs
// on.
func TestPagesAreReleased(t *testing.T) {
	before := fileMemory(t)
	if err := Release(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
}

// fileMemory returns the resident memory of this process that files back, in kB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^RssFile:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no RssFile:\n%s", status)
	}
	kB, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
