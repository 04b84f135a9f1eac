package explain_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag/explain"
)

// Every entry says what its code means, shows it, and says what mends it. No code is there twice.
func TestEntriesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range explain.All() {
		if e.Meaning == "" || e.Fix == "" || (e.YAML == "") == (e.Message == "") {
			t.Errorf("%s: %+v", e.Code, e)
		}
		if seen[e.Code] {
			t.Errorf("%s is there twice", e.Code)
		}
		seen[e.Code] = true
	}
	if len(seen) < 100 {
		t.Errorf("only %d codes", len(seen))
	}
}

// An entry is found by its code or by Istio's name, in any case; a typing mistake has a suggestion.
func TestFind(t *testing.T) {
	for _, code := range []string{"IST0101", "ist0101", "ReferencedResourceNotFound"} {
		if e, _, found := explain.Find(code); !found || e.Code != "IST0101" {
			t.Errorf("%s: %+v, %t", code, e, found)
		}
	}
	if _, near, found := explain.Find("NoEndpoint"); found || near != "NoEndpoints" {
		t.Errorf("near %q, found %t", near, found)
	}
}
