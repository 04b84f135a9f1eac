package extension_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation/lua"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
)

// TestLuaJITAgrees: the LuaJIT of a real Envoy loads the generated scripts that validation accepts, and no others. One
// Envoy judges all of them: its script passes each to loadstring and ends with an error that holds the answers.
func TestLuaJITAgrees(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	scripts := append(grownScripts(), brokenScripts(t)...)
	for _, program := range []string{envoytest.Program(t), os.Getenv("ENVOY_OLDEST")} {
		if program == "" {
			continue
		}
		loads := 0
		for i, why := range loadAll(t, program, scripts) {
			err := lua.Check(scripts[i])
			if why == "" {
				loads++
			}
			if (err == nil) != (why == "") {
				t.Errorf("%s: validation says %v, LuaJIT %q\n%s", filepath.Base(program), err, why, abridged(scripts[i]))
			}
		}
		if loads < len(scripts)/5 || loads > len(scripts)*4/5 {
			t.Errorf("of %d scripts %d load: the script is no fair sample", len(scripts), loads)
		}
	}
}

func abridged(s string) string {
	if len(s) > 600 {
		return s[:300] + " … " + s[len(s)-300:]
	}
	return s
}

// loadAll returns for each script why the LuaJIT of an Envoy does not load it, or "".
func loadAll(t *testing.T, program string, scripts []string) []string {
	t.Helper()
	var all strings.Builder
	all.WriteString("local out = {}\nlocal function try(s) local f, why = loadstring(s, '=s') out[#out+1] = f and '' or why end\n")
	for _, s := range scripts {
		s, _, _ = strings.Cut(s, "\x00")
		all.WriteString("do local s = {}\n")
		for len(s) > 0 {
			n := min(len(s), 4096)
			all.WriteString("s[#s+1] = '")
			for i := range n {
				fmt.Fprintf(&all, "\\%03d", s[i])
			}
			all.WriteString("'\n")
			s = s[n:]
		}
		all.WriteString("try(table.concat(s)) end\n")
	}
	all.WriteString("for i = 1, #out do out[i] = i .. ' ' .. out[i]:gsub('[^ -~]', '?'):sub(-120) end\nerror('\\n<<' .. " +
		"table.concat(out, '\\n<<'))\n")
	text := all.String()
	// A function holds few constants: the script is passed in functions of its own.
	data, err := protojson.Marshal(&bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Listeners: []*listenerv3.Listener{scripted("all", text, 10000)},
	}})
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	must.Succeed(t, os.WriteFile(file, data, 0o600))
	out, _ := exec.CommandContext(t.Context(), program, "--mode", "validate", "-c", file, "--log-format", "%v").CombinedOutput()
	answers := make([]string, len(scripts))
	found := regexp.MustCompile(`(?m)^<<(\d+) ?(.*)$`).FindAllStringSubmatch(string(out), -1)
	for _, m := range found {
		i, err := strconv.Atoi(m[1])
		if err != nil || i > len(scripts) {
			t.Fatal(m[0])
		}
		answers[i-1] = m[2]
	}
	if len(found) < len(scripts) {
		t.Fatalf("%s answered %d of %d: %.3000s", program, len(found), len(scripts), out)
	}
	return answers
}

// wrap puts something around a piece of a script.
type wrap struct{ before, after string }

// Each list takes expressions or statements and makes the same.
var (
	aroundExpressions = []wrap{
		{"(", ")"}, {"f(", ")"}, {"f(1,", ")"}, {"o:m(", ")"}, {"{", "}"}, {"{a=", "}"}, {"{[", "]=1}"}, {"{1,f,", "}"}, {"not ", ""},
		{"-", ""}, {"#", ""}, {"a..", ""}, {"a^", ""},
		{"a+", ""}, {"", "+a"}, {"1+", ""}, {"", "*2"}, {"a[", "]"}, {"a and ", ""}, {"a or ", ""}, {"(a and ", ")"}, {"a==", ""},
		{"(", "<a)"}, {"(", ">a)"}, {"a.b+", ""}, {"a.b..", ""},
		{"function() return ", " end"}, {"f{", "}"}, {"f(a,b,", ",c)"}, {"(", ")()"}, {"(", ").a"}, {"(a.b or ", ")"}, {"f(...,", ")"},
		{"x[1][2][", "]"}, {"f(g(h(1,2,3),4,5),", ")"}, {"(function(...) return ", " end)(1)"},
		{"{...,", "}"}, {"-(", ")"}, {"not(", ")"}, {"1LL+", ""}, {"a-", "-b"}, {"{f(),", "}"}, {"f'x'(", ")"}, {"a:b(c,", ")"},
	}
	aroundStatements = []wrap{
		{"do ", " end "}, {"if a then ", " end "}, {"if a then elseif b then ", " else end "}, {"while a do ", " end "},
		{"for i=1,2 do ", " end "}, {"for k,v in f() do ", " end "},
		{"for a,b,c,d,e in f,g,h do ", " end "}, {"repeat ", " until a "}, {"function f() ", " end "}, {"local function f() ", " end "},
		{"local a,b,c ", " "}, {"local a = f(a) ", " "}, {"local f = function(x) ", " end "},
		{"for i=1,2,3 do local x ", " end "}, {"a.b, c = 1, 2 ", " "}, {"function a.b:c(x, y, ...) ", " end "},
		{"do local a <close> ", " end "}, {"repeat local a ", " until a==b "}, {"local x = function(...) local a,b = ... ", " end "},
		{"goto l ", " "}, {"do goto l ", " end "}, {"do ", " ::m:: end "}, {"do ::m:: ", " end "}, {"local v; v = v + 1 ", " "},
		{"v, t[v] = t[v], v ", " "}, {"x = f(a, ", ") "},
	}
	expressionCores = []string{"a", "1", "'x'", "nil", "true", "f()", "...", "{}", "a.b", "a and b", "a<b", "function() end", "2^3",
		"not a", "v"}
	statementCores = []string{"", "f()", "return", "return f()", "break", "a=1", "goto l", "::l::", "local a", "local b = v return b",
		"f() ::l:: ", "return a, b, ...", "t[v], v = 1, 2"}
)

// listsOf are scripts of one list each, whose length is drawn.
var listsOf = []struct{ before, item, between, after string }{
	{"local ", "a", ",", ""}, {"local ", "a", ",", " = f()"}, {"local ", "a", ",", " = 1, 2"}, {"", "local a ", "", ""},
	{"f(", "1", ",", ")"}, {"f(", "a", ",", ")"}, {"return ", "a", ",", ""}, {"return ", "f()", ",", ""},
	{"function f(", "a", ",", ") end"}, {"function f(", "a", ",", ", ...) end"}, {"function o:f(", "a", ",", ") end"},
	{"", "a", ",", " = 1"}, {"", "a", ",", " = f()"}, {"", "t[1]", ",", " = 1"}, {"", "t[i]", ",", " = 1"},
	{"local t,i ", "t[i]", ",", " = 1"},
	{"x = ", "a", "..", ""}, {"x = ", "a", "^", ""}, {"x = ", "a", "+", ""}, {"x = ", "a", " and ", ""}, {"x = ", "not ", "", "a"},
	{"x = ", "- ", "", "a"}, {"x = ", "#", "", "a"}, {"x = ", "-", " ", "1"}, {"x = {", "a", ",", "}"}, {"x = {", "f()", ",", "}"},
	{"for ", "a", ",", " in b do end"}, {"for i=1,2 do local ", "a", ",", " end"},
	{"for k in a do for i=1,2 do local ", "a", ",", " end end"}, {"x = ", "'a'", "..", ""}, {"x = ", "f(", "", ""},
	{"x = ", "(", "", ""}, {"x = f", "()", "", ""}, {"x = f", ".a", "", ""},
	{"", "do ", "", ""}, {"f = ", "function() return ", "", ""}, {"", "function f() ", "", ""}, {"goto a ", "::b::", " ", "::a::"},
	{"local a ", "goto b", " ", ""}, {"x = f(a, ", "g(b, ", "", ""}, {"if a then ", "elseif b then ", "", "end"},
	{"f(", "...", ",", ")"}, {"a, b, c = ", "1", ",", ""},
}

// many returns a script with so many items, closed where the items open something.
func many(l struct{ before, item, between, after string }, n int, distinct bool) string {
	var b strings.Builder
	b.WriteString(l.before)
	for i := range n {
		if i > 0 {
			b.WriteString(l.between)
		}
		item := l.item
		if distinct {
			item = strings.ReplaceAll(item, "a", "a"+strconv.Itoa(i))
			item = strings.ReplaceAll(item, "b::", "b"+strconv.Itoa(i)+"::")
		}
		b.WriteString(item)
	}
	switch {
	case strings.HasSuffix(l.item, "(") || strings.HasSuffix(l.item, ", "):
		b.WriteString("1" + strings.Repeat(")", n+strings.Count(l.before, "(")))
	case strings.HasSuffix(l.item, "do ") || l.item == "function f() ":
		b.WriteString(strings.Repeat(" end", n))
	case strings.HasPrefix(l.item, "function() return"):
		b.WriteString("1" + strings.Repeat(" end", n))
	}
	return b.String() + l.after
}

// grownScripts are around the sizes at which validation begins to refuse them: the limits of LuaJIT.
func grownScripts() []string {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same scripts each time
	var all []string
	grow := func(script func(n int) string) {
		low, high := 0, 400 // the script of low loads, that of high does not
		if lua.Check(script(low)) == nil && lua.Check(script(high)) != nil {
			for low+1 < high {
				if mid := (low + high) / 2; lua.Check(script(mid)) == nil {
					low = mid
				} else {
					high = mid
				}
			}
			for n := max(low-2, 0); n <= low+3; n++ {
				all = append(all, script(n))
			}
		}
		for _, n := range []int{1, 2, 60, 61, 199, 200, 201, 250, 1 + r.IntN(400)} {
			all = append(all, script(n))
		}
	}
	for _, l := range listsOf {
		grow(func(n int) string { return many(l, n, false) })
		grow(func(n int) string { return many(l, n, true) })
	}
	grow(func(n int) string { // upvalues
		var b strings.Builder
		for i := range n {
			if i%100 == 0 {
				b.WriteString("local function f() ")
			}
			fmt.Fprintf(&b, "local a%d ", i)
		}
		b.WriteString("function g() return a0")
		for i := range n {
			fmt.Fprintf(&b, "+a%d", i)
		}
		return b.String() + " end" + strings.Repeat(" end", (n+99)/100)
	})
	grow(func(n int) string { // constants that need registers
		var b strings.Builder
		for i := range 256 {
			fmt.Fprintf(&b, "x = a%d ", i)
		}
		return b.String() + "f(" + strings.Repeat("1, ", n) + " a.last)"
	})
	pick := func(list []wrap) []wrap {
		out := make([]wrap, 1+r.IntN(4))
		for i := range out {
			out[i] = list[r.IntN(len(list))]
		}
		return out
	}
	wrapped := func(core string, wraps []wrap, n int) string {
		var before, after []string
		for i := range n {
			w := wraps[i%len(wraps)]
			before, after = append(before, w.before), append(after, w.after)
		}
		for i, j := 0, len(after)-1; i < j; i, j = i+1, j-1 {
			after[i], after[j] = after[j], after[i]
		}
		return strings.Join(before, "") + core + strings.Join(after, "")
	}
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		inner, outer := pick(aroundExpressions), pick(aroundStatements)
		core, statement := expressionCores[r.IntN(len(expressionCores))], statementCores[r.IntN(len(statementCores))]
		prefix := []string{"", "local v ", "local a,b,c,d,e,f,g,h,v = 1,2,3 ", "local t = {} local function q() return t end "}[r.IntN(4)]
		k := r.IntN(60)
		switch r.IntN(3) {
		case 0:
			grow(func(n int) string { return prefix + "x = " + wrapped(core, inner, n) })
		case 1:
			grow(func(n int) string { return prefix + wrapped(statement, outer, n) })
		default:
			grow(func(n int) string { return prefix + wrapped("x = "+wrapped(core, inner, n), outer, k) })
		}
	}
	return all
}

var luaToken = regexp.MustCompile(`\s+|[A-Za-z_]\w*|\d[\w.]*|'[^'\n]*'|"[^"\n]*"|\.\.\.?|[=~<>]=|::|.`)

// brokenScripts are scripts in which tokens are removed, repeated, exchanged or replaced.
func brokenScripts(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../galley/validation/lua/testdata/scripts.txt")
	must.Succeed(t, err)
	var base, all []string
	for part := range strings.SplitSeq(string(text), "-- script ") {
		if _, script, ok := strings.Cut(part, "\n"); ok {
			base = append(base, script)
		}
	}
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same scripts each time
	tokens := strings.Fields(`goto a :: :: b break return local function end do then if elseif else while for in repeat until ( ) [ ] { } , ` +
		`; = == ~= .. ... . : + - * / % ^ # < > <= and or not nil x 'x' [[y]] 1 0x1p 1e 1e5 1LL 1LLU 1uLL 1ULLU 1L 1U 2i 1.5i ` +
		`1.5LL 1e0LL 0x1.8LL 0b1 0b12 0b1LL 0b1i 0x 0x. .5. 5.e 1..2 08LL 0xffffffffffffffffLL 0x1ffffffffffffffffLL 99999999999999999999LL ` +
		`99999999999999999999999ULL 9223372036854775807LL 9223372036854775808LL 18446744073709551615LL 18446744073709551616LL ` +
		`18446744073709551615ULL 18446744073709551616ULL 0x00000000000000000000000ffLL 00000000000000000000000000012LL ` +
		`0b1111111111111111111111111111111111111111111111111111111111111111LL ` +
		`0b11111111111111111111111111111111111111111111111111111111111111111LL ` +
		`0b11111111111111111111111111111111111111111111111111111111111111111 0x1ffffffffffffffffffff 1e999 0x1p99999 '\u{41}' '\u{110000}' ` +
		`'\u{10ffff}' '\u{d800}' '\u{7fffffff}' '\u{}' '\u{000000000041}' '\x4g' '\256' '\z' '\q' [=[a]=] [=a --[[c]] --[=x & | ~ ! @ $ ? é`)
	rounds := 6000
	if testing.Short() {
		rounds = 2500
	}
	for _, tok := range tokens {
		all = append(all, "x = "+tok, "x = "+tok+" y = 1", tok)
	}
	for range rounds {
		parts := luaToken.FindAllString(base[r.IntN(len(base))], -1)
		if len(parts) == 0 || len(parts) > 200 {
			continue
		}
		for range 1 + r.IntN(2) {
			i, j := r.IntN(len(parts)), r.IntN(len(parts))
			switch r.IntN(5) {
			case 0:
				parts[i] = ""
			case 1:
				parts[i] += " " + parts[i]
			case 2:
				parts[i], parts[j] = parts[j], parts[i]
			case 3:
				parts[i] = " " + tokens[r.IntN(len(tokens))] + " "
			default:
				parts[i] += " " + tokens[r.IntN(len(tokens))] + " "
			}
		}
		all = append(all, strings.Join(parts, ""))
	}
	return all
}
