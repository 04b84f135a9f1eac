package substitution

import (
	"slices"
	"strings"
)

// maxSteps bounds the operators, fields, indexes, calls and parentheses of an expression. Envoy's parser accepts 32
// levels, and each of these may be one.
const maxSteps = 24

// compiles reports whether all Envoys certainly compile a CEL expression: it has only attributes, fields, literals,
// lists, operators and calls of common functions. Envoy checks no types before it evaluates an expression, and accepts
// any name as an attribute.
func compiles(text string) bool {
	e := &expression{rest: text}
	return e.conditional() && e.skip() && e.rest == ""
}

// expression is the unread rest of a CEL expression.
type expression struct {
	rest  string
	steps int
}

// skip skips spaces. It returns true.
func (e *expression) skip() bool {
	e.rest = strings.TrimLeft(e.rest, " \t")
	return true
}

// take takes a sign or an operator.
func (e *expression) take(sign string) bool {
	e.skip()
	rest, ok := strings.CutPrefix(e.rest, sign)
	if ok {
		e.rest = rest
	}
	return ok
}

// step reports whether the expression may have one more operator or the like.
func (e *expression) step() bool {
	e.steps++
	return e.steps <= maxSteps
}

func (e *expression) conditional() bool {
	if !e.operands() {
		return false
	}
	if !e.take("?") {
		return true
	}
	return e.step() && e.operands() && e.take(":") && e.conditional()
}

// operands reads operands with operators between them. Their precedence does not matter here.
func (e *expression) operands() bool {
	for e.operand() {
		switch {
		case slices.ContainsFunc([]string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/"}, e.take):
		case e.word() == "in":
			e.take("in")
		default:
			return true
		}
		if !e.step() {
			return false
		}
	}
	return false
}

// operand reads a value, with its fields, indexes and methods.
func (e *expression) operand() bool {
	if e.take("!") {
		return e.step() && e.operand()
	}
	if e.take("-") && (!e.step() || e.take("-")) {
		return false
	}
	if !e.value() {
		return false
	}
	for {
		switch {
		case e.take("["):
			if !e.step() || !e.conditional() || !e.take("]") {
				return false
			}
		case e.take("."):
			name := e.word()
			if !e.step() || name == "" || slices.Contains(literals, name) || !e.take(name) {
				return false
			}
			if e.take("(") && !e.arguments(methods, name) {
				return false
			}
		default:
			return true
		}
	}
}

// value reads a literal, a list, an attribute, a call or an expression in parentheses.
func (e *expression) value() bool {
	name := e.word()
	switch {
	case name == "true", name == "false":
		return e.take(name)
	case slices.Contains(literals, name), slices.Contains(reserved, name):
		return false
	case name != "":
		return e.take(name) && (!e.take("(") || e.step() && e.arguments(functions, name))
	case e.take("("):
		return e.step() && e.conditional() && e.take(")")
	case e.take("["):
		return e.step() && e.list("]") > 0
	}
	return e.text() || e.number()
}

// arguments reads the arguments of a call, and reports whether the function takes that many.
func (e *expression) arguments(of map[string]int, name string) bool {
	want, ok := of[name]
	if !ok || want == 0 {
		return ok && e.take(")")
	}
	return e.list(")") == want
}

// list reads expressions with commas between them up to a sign. It returns how many there are, or 0 if they cannot be
// read.
func (e *expression) list(end string) int {
	for n := 1; e.conditional(); n++ {
		if e.take(end) {
			return n
		}
		if !e.take(",") || !e.step() {
			break
		}
	}
	return 0
}

// word returns the name that comes next, or "".
func (e *expression) word() string {
	e.skip()
	isName := func(r rune) bool { return r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	for i, r := range e.rest {
		if !isName(r) && (i == 0 || r < '0' || r > '9') {
			return e.rest[:i]
		}
	}
	return e.rest
}

// text reads a string without escapes.
func (e *expression) text() bool {
	for _, quote := range []string{"'", `"`} {
		if e.take(quote) {
			text, rest, ok := strings.Cut(e.rest, quote)
			e.rest = rest
			return ok && !strings.ContainsAny(text, "\\\r\n") && !(text == "" && strings.HasPrefix(rest, quote))
		}
	}
	return false
}

// number reads a decimal number.
func (e *expression) number() bool {
	const most = 15
	digits := func() int {
		rest := strings.TrimLeft(e.rest, "0123456789")
		n := len(e.rest) - len(rest)
		e.rest = rest
		return n
	}
	e.skip()
	n := digits()
	if n == 0 || n > most {
		return false
	}
	if fraction, ok := strings.CutPrefix(e.rest, "."); ok {
		e.rest = fraction
		n = digits()
	}
	return n > 0 && n <= most && (strings.HasPrefix(e.rest, " ") || e.word() == "")
}

// literals are the words of CEL that cannot be names, not even of fields.
var literals = []string{"true", "false", "null", "in"}

// reserved are the words of CEL that cannot be names of attributes.
var reserved = []string{
	"as", "break", "const", "continue", "else", "for", "function", "if", "import",
	"let", "loop", "namespace", "package", "return", "var", "void", "while",
}

// functions maps functions of CEL to the number of their arguments.
var functions = map[string]int{"size": 1, "duration": 1, "int": 1}

// methods maps functions of CEL that are called on a value to the number of their other arguments.
var methods = map[string]int{
	"size": 0, "contains": 1, "startsWith": 1, "endsWith": 1, "getDate": 0,
	"getDayOfMonth": 0, "getDayOfWeek": 0, "getDayOfYear": 0, "getFullYear": 0,
	"getHours": 0, "getMilliseconds": 0, "getMinutes": 0, "getMonth": 0, "getSeconds": 0,
}
