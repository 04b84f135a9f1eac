package safe

import (
	"regexp/syntax"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestRegexSizeRefuses(t *testing.T) {
	for name, expr := range map[string]string{
		"long":             strings.Repeat("a", limits.Default().RegexBytes+1),
		"megabyte":         strings.Repeat("a?", 1<<19),
		"repeats":          strings.Repeat("(x{1000})", 113),
		"nested repeats":   "((((a{30}){30}){30}){30}){2}",
		"nested unbounded": "((a{999}){999,}){0,999}",
		"nested groups":    strings.Repeat("(", 10000) + strings.Repeat(")", 10000),
		"not RE2":          "(a)\\1",
		"look ahead":       "(?=a)b",
		"unclosed":         "a(b",
		"not UTF-8":        "a\xff",
		"wide":             `a\x{100}`,
		"wide in a class":  `[^a-\x{10FFFF}]`,
		"wide after Q":     `\Q\x{100}\E\x{100}`,
	} {
		start := processorTime(t)
		if _, err := RegexSize(limits.Default(), expr); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if d := processorTime(t) - start; d > time.Second {
			t.Errorf("%s: took %v of a processor", name, d)
		}
	}
}

// processorTime returns the time for which this process has had a processor. A busy machine does not change it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must.Succeed(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestRegexSizeAccepts(t *testing.T) {
	for _, expr := range []string{"", "a", "^/api/v[0-9]+/.*$", "(a+)+$", "[^/]{1,63}",
		"(?i)firefox|chrome", `1\.29.*`, `\x{FF}\x41`, "日[é]", `\\x{100}`, `\Q\x{100}\E`, `\Q\x{100}`} {
		if _, err := RegexSize(limits.Default(), expr); err != nil {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

// The count may be too high, since Simplify saves instructions, but a count that is too low would let a large program
// in.
func TestRegexSizeIsAnUpperBound(t *testing.T) {
	for _, expr := range []string{
		"", "a", "abc", "a|b|cd", "(a)(b)", "a*", "(a*)*", "(|a)*", "(a|b*)*c", "a{3}", "a{3,}", "a{0,}", "a{0,5}", "(ab){2,7}",
		"(a{3}){4}", "(?:a?){20}", "(?:a*){2,}", "[a-z]+", "^a$", `\bfoo\b`, "(?i)k", "(?s).", `\p{L}{1,10}`, "x{0}",
		"(x{2}y{3,4}|z?)*",
	} {
		n, err := RegexSize(limits.Default(), expr)
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		tree, err := syntax.Parse(expr, syntax.Perl)
		must.Succeed(t, err)
		prog, err := syntax.Compile(tree.Simplify())
		must.Succeed(t, err)
		if len(prog.Inst) > n {
			t.Errorf("%q: counted %d, compiled to %d", expr, n, len(prog.Inst))
		}
		if n > 2*len(prog.Inst)+8 {
			t.Errorf("%q: counted %d, compiled to only %d", expr, n, len(prog.Inst))
		}
	}
}

// What Envoy 1.40 says that its programs need. An estimate that is too low would promise that an Envoy takes what it
// refuses.
func TestRE2Size(t *testing.T) {
	for _, c := range []struct {
		expr string
		size int
	}{
		{`a`, 5},
		{`abc`, 7},
		{strings.Repeat("a", 90), 94},
		{strings.Repeat("a", 98), 102},
		{`[a-z]+`, 6},
		{`[^/]+`, 7},
		{`[^/]{1,63}`, 192},
		{`[a-z0-9]{1,20}`, 63},
		{`(?i)abcdefghij`, 14},
		{`.*`, 6},
		{`.+foo.*`, 12},
		{`(a|b|cd)`, 9},
		{`^/api/v[0-9]+/.*$`, 9},
		{`\w{10}`, 34},
		{`\d{1,10}`, 23},
		{`[[:alnum:]_-]{5,10}`, 49},
		{`(foo|bar|baz){3}`, 31},
		{`\bfoo\b`, 9},
		{`(?i)(firefox|chrome|safari)`, 25},
		{`[^abc]{10}`, 24},
		{`(?:a?){20}`, 44},
		{`(a*)*`, 11},
		{`é{5}`, 10},
		{`[é-ü]{3}`, 7},
		{`(?s).{20}`, 24},
		{`.{20}`, 44},
		{`\S{10}`, 44},
		{`[^a-zA-Z0-9]{5}`, 24},
		{`(?i)[a-z]{5}`, 9},
		{`\W{5}`, 29},
		{`x{3,}`, 8},
		{`(ab){2,7}`, 37},
		{`\p{L}{1,3}`, 27},
		{`(?i)k{5}`, 9},
		{`[\w.-]+@[\w-]+\.[a-z]{2,6}`, 26},
		{`^(?:[^;]*;)?v=1(?:;.*)?$`, 15},
	} {
		n := RE2Size(c.expr)
		if n < c.size || n > 2*c.size+8 {
			t.Errorf("%q: estimated %d, RE2 needs %d", c.expr, n, c.size)
		}
	}
}
