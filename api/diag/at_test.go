package diag_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

func TestAt(t *testing.T) {
	for position, want := range map[string]diag.Diagnostic{
		"":                  {},
		"Secret a/b":        {},
		"a.yaml:3:7":        {File: "a.yaml", Line: 3, Column: 7},
		"/etc/a:b.yaml:1:2": {File: "/etc/a:b.yaml", Line: 1, Column: 2},
	} {
		if got := (diag.Diagnostic{}).At(position); got != want {
			t.Errorf("%q: %+v, want %+v", position, got, want)
		}
	}
}
