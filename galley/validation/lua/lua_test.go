package lua_test

import (
	"os"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation/lua"
)

// TestScripts checks the scripts of testdata, each of which says what is wrong with it. A real Envoy agrees:
// pilot/feature/extension TestEnvoysTakeScripts.
func TestScripts(t *testing.T) {
	text, err := os.ReadFile("testdata/scripts.txt")
	must.Succeed(t, err)
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

// TestHostile: scripts of any size and shape are checked within bounds, and never panic.
func TestHostile(t *testing.T) {
	const n = 64 << 10
	for _, s := range []string{
		"(", "{", "-", "[", "[=", "do ", "if a then else", "a..", "a+", "goto a ", "not ", "\xff", "\x00", "f=function() ",
		"()", "::a::", "local a ", "a,", "x=1 ", "local function f() ", "{a=", "a[", "f(", "'", "1", "0x", "\\", "while 1 do ",
		"repeat ", "return ", "for a in b do local a ", "break ", "--[", "\n", "a.b:c", "a and ",
	} {
		for _, before := range []string{"", "x = ", "f", "--[", "while 1 do ", "'",
			"return ", "function f(", "local ", "\ufeff#", "[[", "x = {", "\x1b"} {
			_ = lua.Check(before + strings.Repeat(s, n/len(s)))
		}
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
