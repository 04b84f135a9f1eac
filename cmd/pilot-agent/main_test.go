package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--short"}, {"version", "-o", "json"}, {"version", "-o", "yaml"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), "1.31.1-lite.1") {
			t.Errorf("%v: exit %d, %s%s", args, code, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"version", "-o", "xml"}, nil, &out, &errs); code != 1 || !strings.Contains(errs.String(), "json or yaml") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
