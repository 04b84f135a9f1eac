package terminal

import (
	"strings"
	"testing"
)

// Colours are for terminals, unless they are asked for; other values are refused.
func TestColor(t *testing.T) {
	var w strings.Builder
	for mode, want := range map[string]bool{"": false, "auto": false, "always": true, "never": false} {
		if got, err := Color(mode, &w, func(string) string { return "" }); err != nil || got != want {
			t.Errorf("%q: %t, %v", mode, got, err)
		}
	}
	if _, err := Color("sometimes", &w, nil); err == nil || !strings.Contains(err.Error(), "auto") {
		t.Errorf("an unknown mode: %v", err)
	}
}
