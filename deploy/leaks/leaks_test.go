package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestNone: a goroutine that ends late is waited for, and a goroutine that does not end is found.
func TestNone(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	go time.Sleep(time.Second)
	None(t, ignore)
	end := make(chan bool)
	go func() { <-end }()
	if err := find(0, ignore); err == nil {
		t.Error("a goroutine that is left is not found")
	}
	close(end)
	None(t, ignore)
}
