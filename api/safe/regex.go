package safe

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// RegexSize returns the number of instructions that a user's regular expression compiles to, or why it may not be
// compiled. It counts on the parse tree, before the program is built. The length of an expression does not bound its
// program: (x{1000}) repeated a hundred times has one kilobyte and a hundred thousand instructions, which every proxy
// would hold.
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
	n := instructions(tree, l.RegexInstructions+1, oneInstruction) + 2 // fail and match instructions of the program
	if n > l.RegexInstructions {
		return 0, fmt.Errorf("regular expression needs more than %d instructions", l.RegexInstructions)
	}
	return n, nil
}

// RE2Size returns an upper bound of RE2's program for an expression that RegexSize accepts, as Envoy compiles it: for
// bytes, with some instructions around it, and one for each byte range of a class.
func RE2Size(expr string) int {
	const around, top = 4, 1 << 20
	bytes := make([]rune, len(expr))
	for i := range len(expr) {
		bytes[i] = rune(expr[i])
	}
	tree, err := syntax.Parse(string(bytes), syntax.Perl)
	if err != nil { // a class whose ends are of several bytes
		if tree, err = syntax.Parse(expr, syntax.Perl); err != nil {
			return 0
		}
	}
	return instructions(tree, top, byteRanges) + around
}

func oneInstruction(*syntax.Regexp) int { return 1 }

// byteRanges counts the byte ranges of a class.
func byteRanges(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpAnyCharNotNL:
		n = 2
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune) && re.Rune[i] <= 0xFF; i += 2 {
			n++
		}
	}
	return max(n, 1)
}

// wideEscape returns the first \x{...} above \x{FF} in an expression that parses, or "". Proxies compile expressions as
// Latin-1 and refuse it.
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

// instructions returns how many instructions the compiler emits for re. class returns how many of them match one
// character. The result is at most top, so that nested repetitions cannot overflow.
func instructions(re *syntax.Regexp, top int, class func(*syntax.Regexp) int) int {
	sub := 0
	for _, s := range re.Sub {
		sub = min(sub+instructions(s, top, class), top)
	}
	n := class(re)
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
		// A star over an expression that may match nothing is compiled as (x+)?, one instruction more.
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
