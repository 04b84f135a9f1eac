package safe

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// RegexSize gives the number of instructions that an expression which a user wrote compiles to, or why it may not be compiled: counted on the parse tree, before
// anything of that size exists. Length alone bounds nothing: (x{1000}) written a hundred times over is one kilobyte and a hundred thousand instructions, for which
// the proxies would pay.
func RegexSize(l limits.Limits, expr string) (int, error) {
	if len(expr) > l.RegexBytes {
		return 0, fmt.Errorf("regular expression has %d bytes, more than %d", len(expr), l.RegexBytes)
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	if escape := wideEscape(expr); escape != "" {
		return 0, fmt.Errorf("%s is no byte: proxies match bytes, so write the character itself", escape)
	}
	n := instructions(tree, l.RegexInstructions+1) + 2 // the program's own fail and match
	if n > l.RegexInstructions {
		return 0, fmt.Errorf("regular expression needs more than %d instructions", l.RegexInstructions)
	}
	return n, nil
}

// wideEscape gives the first \x{...} above \x{FF} in an expression that parses, or "". Proxies compile expressions as Latin-1 and refuse it.
func wideEscape(expr string) string {
	for i := 0; i+1 < len(expr); i++ {
		if expr[i] != '\\' {
			continue
		}
		rest := expr[i+1:]
		i++
		switch rest[0] {
		case 'Q':
			end := strings.Index(rest, `\E`)
			if end < 0 {
				return ""
			}
			i += end + 1
		case 'x':
			digits, _, braced := strings.Cut(strings.TrimPrefix(rest, "x{"), "}")
			if v, err := strconv.ParseUint(digits, 16, 32); strings.HasPrefix(rest, "x{") && braced && err == nil && v > 0xFF {
				return `\x{` + digits + "}"
			}
		}
	}
	return ""
}

// instructions counts what the compiler emits for re, and saturates at top, so that nested repetitions cannot overflow.
func instructions(re *syntax.Regexp, top int) int {
	sub := 0
	for _, s := range re.Sub {
		sub = min(sub+instructions(s, top), top)
	}
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpConcat:
		n = sub
	case syntax.OpAlternate:
		n = sub + len(re.Sub) - 1
	case syntax.OpCapture:
		n = sub + 2
	case syntax.OpStar, syntax.OpQuest:
		// A star over what may be empty is compiled as (x+)?, one instruction more.
		n = sub + 2
	case syntax.OpPlus:
		n = sub + 1
	case syntax.OpRepeat:
		if re.Max < 0 {
			n = max(re.Min, 1)*sub + 2
		} else {
			n = re.Min*sub + (re.Max-re.Min)*(sub+1)
		}
	}
	return min(max(n, 1), top)
}
