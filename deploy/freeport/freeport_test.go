package freeport

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPortIsPickedOnce: a port that was picked is not picked again, although nothing listens on it yet.
func TestPortIsPickedOnce(t *testing.T) {
	port, err := Pick(t.Context(), "127.0.0.1")
	must.Succeed(t, err)
	if err := pick(t.Context(), "127.0.0.1", port); err == nil {
		t.Errorf("port %s is picked twice", port)
	}
}
