package lua

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// token is a part of a script. The kind of a word or a sign of the language is its text. The kind of a token with a
// value is one of the constants below.
type token struct {
	kind  string
	text  string  // the name, the string as written, or the number
	value float64 // the value of a number
	line  int
}

const (
	tokenEnd    = "the end"
	tokenName   = "a name"
	tokenString = "a string"
	tokenNumber = "a number"
	tokenCData  = "a number of 64 bits" // or a complex number: LuaJIT keeps both apart from other numbers
)

// lexer splits a script into tokens. After its first fault, it returns tokenEnd alone.
type lexer struct {
	in    string
	at    int
	line  int
	fault *Error
}

// newLexer returns a lexer behind a byte order mark and a first line that names a program.
func newLexer(script string) *lexer {
	if i := strings.IndexByte(script, 0); i >= 0 {
		script = script[:i]
	}
	l := &lexer{in: script, line: 1}
	if strings.HasPrefix(l.in, "\ufeff") {
		l.at = len("\ufeff")
	}
	if strings.HasPrefix(l.in[l.at:], "#") {
		l.skipLine()
	}
	return l
}

func (l *lexer) fail(line int, message string) {
	if l.fault == nil {
		l.fault = &Error{max(line, 1), message}
	}
	l.at = len(l.in)
}

func (l *lexer) end() token { return token{kind: tokenEnd, line: l.line} }

// signs are the tokens without letters, the longest first.
var signs = [...]string{"...", "..", "==", "~=", "<=", ">=", "::"}

func (l *lexer) next() token {
	for l.at < len(l.in) {
		rest := l.in[l.at:]
		switch c := rest[0]; {
		case c == '\n' || c == '\r':
			l.newline()
		case c == ' ' || c == '\t' || c == '\v' || c == '\f':
			l.at++
		case strings.HasPrefix(rest, "--"):
			l.at += 2
			if level, ok := bracketLevel(l.in[l.at:]); ok && level >= 0 {
				if _, ok := l.long(level); !ok {
					l.fail(l.line, "a comment does not end")
				}
			} else {
				l.skipLine()
			}
		case c == '[':
			line := l.line
			level, ok := bracketLevel(rest)
			switch {
			case !ok && level > 0:
				l.fail(line, "a long string begins with [, equal signs and another [")
				return l.end()
			case !ok:
				l.at++
				return token{kind: "[", line: line}
			}
			text, ok := l.long(level)
			if !ok {
				l.fail(line, "a string does not end")
				return l.end()
			}
			return token{kind: tokenString, text: text, line: l.line}
		case c == '"' || c == '\'':
			return l.quoted(c)
		case digit(c) || c == '.' && len(rest) > 1 && digit(rest[1]):
			return l.number()
		case letter(c):
			return l.word()
		default:
			for _, sign := range signs {
				if strings.HasPrefix(rest, sign) {
					l.at += len(sign)
					return token{kind: sign, line: l.line}
				}
			}
			l.at++
			return token{kind: rest[:1], line: l.line}
		}
	}
	return l.end()
}

// newline reads the end of a line, of which \r\n and \n\r are one.
func (l *lexer) newline() {
	c := l.in[l.at]
	l.at++
	if l.at < len(l.in) && (l.in[l.at] == '\n' || l.in[l.at] == '\r') && l.in[l.at] != c {
		l.at++
	}
	l.line++
}

func (l *lexer) skipLine() {
	if i := strings.IndexAny(l.in[l.at:], "\r\n"); i >= 0 {
		l.at += i
	} else {
		l.at = len(l.in)
	}
}

// bracketLevel returns the number of equal signs behind the bracket with which a text begins, and whether that is a
// long bracket. The level is -1 if the text begins with no bracket.
func bracketLevel(text string) (level int, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return -1, false
	}
	after := strings.TrimLeft(text[1:], "=")
	level = len(text) - 1 - len(after)
	return level, strings.HasPrefix(after, "[")
}

// long reads a long string or comment from its first bracket on.
func (l *lexer) long(level int) (text string, ok bool) {
	body := l.in[l.at+level+2:]
	closing := "]" + strings.Repeat("=", level) + "]"
	n := strings.Index(body, closing)
	if n < 0 {
		return "", false
	}
	end := l.at + level + 2 + n + len(closing)
	for l.at < end {
		if c := l.in[l.at]; c == '\n' || c == '\r' {
			l.newline()
		} else {
			l.at++
		}
	}
	return body[:n], true
}

// quoted reads a string in quotes.
func (l *lexer) quoted(quote byte) token {
	start := l.at
	l.at++
	for l.at < len(l.in) {
		switch c := l.in[l.at]; c {
		case quote:
			l.at++
			return token{kind: tokenString, text: l.in[start:l.at], line: l.line}
		case '\n', '\r':
			l.fail(l.line, "a string does not end on its line")
			return l.end()
		case '\\':
			l.at++
			if why := l.escape(); why != "" {
				l.fail(l.line, why)
				return l.end()
			}
		default:
			l.at++
		}
	}
	l.fail(l.line, "a string does not end")
	return l.end()
}

var (
	codeOfByte = regexp.MustCompile(`^x[0-9A-Fa-f]{2}`)
	codePoint  = regexp.MustCompile(`^u\{0*([0-9A-Fa-f]+)\}`)
	decimal    = regexp.MustCompile(`^[0-9]{1,3}`)
)

// escape reads what follows a backslash, and returns why it is no escape sequence, or "".
func (l *lexer) escape() (why string) {
	rest := l.in[l.at:]
	if rest == "" {
		return "a string does not end"
	}
	n := 1
	switch c := rest[0]; {
	case strings.IndexByte(`abfnrtv\"'`, c) >= 0:
	case c == '\n' || c == '\r':
		l.newline()
		return ""
	case codeOfByte.MatchString(rest):
		n = 3
	case codePoint.MatchString(rest):
		m := codePoint.FindStringSubmatch(rest)
		n = len(m[0])
		if r, err := strconv.ParseUint(m[1], 16, 32); err != nil || r > 0x10ffff || 0xd800 <= r && r < 0xe000 {
			return "a string has an escape sequence \\u{…} of no character"
		}
	case decimal.MatchString(rest):
		d := decimal.FindString(rest)
		if len(d) == 3 && d > "255" {
			return `\` + d + " is no byte: a backslash takes numbers up to 255"
		}
		n = len(d)
	case c == 'z':
		for l.at++; l.at < len(l.in); {
			switch l.in[l.at] {
			case '\n', '\r':
				l.newline()
			case ' ', '\t', '\v', '\f':
				l.at++
			default:
				return ""
			}
		}
		return ""
	default:
		return "a string has the invalid escape sequence \\" + strings.ToValidUTF8(rest[:1], "?")
	}
	l.at += n
	return ""
}

var (
	wholeNumber = regexp.MustCompile(`^(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|[0-9]+)(?:[uU][lL][lL]|[lL][lL][uU]?)$`)
	realNumber  = regexp.MustCompile(`^(?:0[xX](?:[0-9A-Fa-f]+\.?[0-9A-Fa-f]*|\.[0-9A-Fa-f]+)(?:[pP][+-]?[0-9]+)?|0[bB][01]+|` +
		`(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[iI]?$`)
)

// number reads all characters that may belong to a number, and checks the number as a whole.
func (l *lexer) number() token {
	start, exponent := l.at, byte('e')
	if rest := l.in[l.at:]; len(rest) > 1 && rest[0] == '0' && rest[1]|0x20 == 'x' {
		exponent = 'p'
	}
	for l.at < len(l.in) {
		c := l.in[l.at]
		sign := (c == '+' || c == '-') && l.at > start && l.in[l.at-1]|0x20 == exponent
		if !letter(c) && !digit(c) && c != '.' && !sign {
			break
		}
		l.at++
	}
	text := l.in[start:l.at]
	switch {
	case wholeNumber.MatchString(text) && fits(text):
		return token{kind: tokenCData, line: l.line}
	case !realNumber.MatchString(text) || text[len(text)-1]|0x20 != 'i' && isBinary(text) && !fits(text):
		l.fail(l.line, strconv.Quote(strings.ToValidUTF8(text[:min(len(text), 40)], "?"))+" is no number")
		return l.end()
	case text[len(text)-1]|0x20 == 'i':
		return token{kind: tokenCData, line: l.line}
	}
	return token{kind: tokenNumber, text: text, value: numberValue(text), line: l.line}
}

func isBinary(text string) bool { return len(text) > 1 && text[0] == '0' && text[1]|0x20 == 'b' }

// fits reports whether a whole number has at most 64 bits.
func fits(text string) bool {
	text, base := strings.TrimLeft(strings.TrimRight(strings.ToLower(text), "ul"), "0"), 10
	switch {
	case strings.HasPrefix(text, "x"):
		text, base = text[1:], 16
	case strings.HasPrefix(text, "b"):
		text, base = text[1:], 2
	}
	_, err := strconv.ParseUint("0"+text, base, 64)
	return err == nil
}

// numberValue returns the value of a number, or 0.5 if Go cannot read it. The value decides whether an operation on
// constants needs a register, and nothing else.
func numberValue(text string) float64 {
	if len(text) > 1 && text[0] == '0' && text[1]|0x20 == 'x' && !strings.ContainsAny(text, "pP") {
		text += "p0"
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) {
		if n, err := strconv.ParseUint(text, 0, 64); err == nil {
			return float64(n)
		}
		return 0.5
	}
	return v
}

// word reads a name or a word of the language.
func (l *lexer) word() token {
	start := l.at
	for l.at < len(l.in) && (letter(l.in[l.at]) || digit(l.in[l.at])) {
		l.at++
	}
	switch text := l.in[start:l.at]; text {
	case "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not", "or", "repeat",
		"return", "then", "true", "until", "while":
		return token{kind: text, line: l.line}
	default:
		return token{kind: tokenName, text: text, line: l.line}
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
