package lua_test

import (
	"os"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/galley/validation/lua"
)

// TestScripts judges the scripts of testdata, each of which says what is wrong with it. A real Envoy agrees:
// pilot/feature/extension TestEnvoysTakeScripts.
func TestScripts(t *testing.T) {
	text, err := os.ReadFile("testdata/scripts.txt")
	if err != nil {
		t.Fatal(err)
	}
	var good, bad int
	for part := range strings.SplitSeq(string(text), "-- script ") {
		want, script, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		got := "loads"
		if err := lua.Check(script); err != nil {
			got = err.Error()
			bad++
		} else {
			good++
		}
		if got != want {
			t.Errorf("%s\nit is judged: %s, not %s", script, got, want)
		}
	}
	if good < 30 || bad < 20 {
		t.Errorf("%d scripts load, and %d do not", good, bad)
	}
}

// TestHostile: scripts without end or measure are judged in no time, and never panic.
func TestHostile(t *testing.T) {
	const n = 64 << 10
	for _, s := range []string{
		strings.Repeat("(", n), strings.Repeat("{", n), "x=" + strings.Repeat("-", n), "x='" + strings.Repeat(`\z `, n/3), strings.Repeat("[", n), strings.Repeat("[=", n/2),
		strings.Repeat("do ", n/3), strings.Repeat("if a then else", n/14), "x=" + strings.Repeat("a..", n/3) + "a", "x=" + strings.Repeat("a+", n/2) + "a", strings.Repeat("goto a ", n/7),
		"x=" + strings.Repeat("not ", n/4) + "a", strings.Repeat("\xff", n), strings.Repeat("\x00", n), "--[" + strings.Repeat("=", n), strings.Repeat("f=function() ", n/13), "f" + strings.Repeat("()", n/2), "", "\\", "'\\", "\ufeff#",
	} {
		_ = lua.Check(s)
	}
}

// FuzzCheck: no script makes Check panic.
func FuzzCheck(f *testing.F) {
	text, err := os.ReadFile("testdata/scripts.txt")
	if err != nil {
		f.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "-- script ") {
		f.Add(part)
	}
	f.Fuzz(func(_ *testing.T, script string) { _ = lua.Check(script) })
}
