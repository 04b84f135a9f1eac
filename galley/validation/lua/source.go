package lua

import (
	"fmt"
	"regexp"
	"strings"
)

// Error is what is wrong with a script.
type Error struct {
	Line    int // from 1
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// source is a script on its way to the parser: out has the same lines, and Lua 5.1 where LuaJIT takes more.
type source struct {
	in  string
	at  int
	out strings.Builder
}

// plain returns a script as the parser takes it.
func plain(script string) (string, *Error) {
	s := &source{in: script}
	if strings.HasPrefix(s.in, "\ufeff") {
		s.at = len("\ufeff")
	}
	if strings.HasPrefix(s.in[s.at:], "#") { // the line that names a program
		s.at = len(s.in) - len(s.fromNewline())
	}
	open := 0
	for s.at < len(s.in) {
		rest := s.in[s.at:]
		switch c := rest[0]; {
		case strings.HasPrefix(rest, "--"):
			n := 2 + bracket(rest[2:])
			if n == 2 {
				n = len(rest) - len(s.fromNewline())
			}
			s.copy(n)
		case c == '[' && bracket(rest) > 0:
			s.copy(bracket(rest))
		case c == '"' || c == '\'':
			if err := s.text(c); err != nil {
				return "", err
			}
		case digit(c) || c == '.' && len(rest) > 1 && digit(rest[1]) && !strings.HasSuffix(s.in[:s.at], "."):
			s.number()
		case letter(c):
			s.name()
		default:
			if open += nesting(c); open > deepest {
				return "", s.fault("brackets are nested too deep")
			}
			s.copy(1)
		}
	}
	return s.out.String(), nil
}

// nesting returns by how many levels a character nests what follows.
func nesting(c byte) int {
	switch c {
	case '(', '{', '[':
		return 1
	case ')', '}', ']':
		return -1
	}
	return 0
}

func (s *source) copy(n int) {
	s.out.WriteString(s.in[s.at : s.at+n])
	s.at += n
}

// fromNewline returns what follows from the end of the line on.
func (s *source) fromNewline() string {
	if i := strings.IndexAny(s.in[s.at:], "\r\n"); i >= 0 {
		return s.in[s.at+i:]
	}
	return ""
}

func (s *source) fault(format string, args ...any) *Error {
	return &Error{1 + strings.Count(s.in[:min(s.at, len(s.in))], "\n"), fmt.Sprintf(format, args...)}
}

// bracket returns the length of a long bracket at the beginning of a text, such as [[...]] or [=[...]=]; 0 if there is
// none, or it does not end.
func bracket(text string) int {
	level := 0
	for level+1 < len(text) && text[level+1] == '=' {
		level++
	}
	if len(text) < level+2 || text[0] != '[' || text[level+1] != '[' {
		return 0
	}
	end := strings.Index(text, "]"+strings.Repeat("=", level)+"]")
	if end < 0 {
		return 0
	}
	return end + level + 2
}

var (
	codeOfByte = regexp.MustCompile(`^x[0-9A-Fa-f]{2}`)
	codePoint  = regexp.MustCompile(`^u\{[0-9A-Fa-f]{1,8}\}`)
	decimal    = regexp.MustCompile(`^[0-9]{1,3}`)
	blanks     = regexp.MustCompile(`^z[ \t\r\n\v\f]*`)
)

// text copies a string. Its characters mean nothing to the parser, but for its lines.
func (s *source) text(quote byte) *Error {
	s.copy(1)
	for s.at < len(s.in) {
		switch c := s.in[s.at]; c {
		case quote:
			s.copy(1)
			return nil
		case '\n', '\r':
			return s.fault("a string does not end on its line")
		case '\\':
			s.at++
			if err := s.escape(); err != nil {
				return err
			}
		default:
			s.out.WriteByte('a')
			s.at++
		}
	}
	return s.fault("a string does not end")
}

// escape reads what follows a backslash.
func (s *source) escape() *Error {
	rest := s.in[s.at:]
	if rest == "" {
		return s.fault("a string does not end")
	}
	n := 1
	switch c := rest[0]; {
	case strings.IndexByte(`abfnrtv\"'`, c) >= 0:
	case c == '\n' || c == '\r':
		if len(rest) > 1 && (rest[1] == '\n' || rest[1] == '\r') && rest[1] != c {
			n = 2
		}
		s.out.WriteString("\\\n")
	case codeOfByte.MatchString(rest):
		n = 3
	case codePoint.MatchString(rest):
		n = len(codePoint.FindString(rest))
	case decimal.MatchString(rest):
		d := decimal.FindString(rest)
		if len(d) == 3 && d > "255" {
			return s.fault(`\%s is no byte: a backslash takes numbers up to 255`, d)
		}
		n = len(d)
	case c == 'z':
		n = len(blanks.FindString(rest))
		s.out.WriteString(strings.Repeat("\\\n", strings.Count(rest[:n], "\n")))
	default:
		return s.fault("a string has the invalid escape sequence \\%c", rune(c))
	}
	s.at += n
	return nil
}

var number = regexp.MustCompile(`^(?:0[xX](?:[0-9A-Fa-f]+\.?[0-9A-Fa-f]*|\.[0-9A-Fa-f]+)(?:[pP][+-]?[0-9]+)?|0[bB][01]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:[uU]?[lL][lL]|[iI])?`)

var plainNumber = regexp.MustCompile(`^(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)$`)

// number copies a number, or 0 in the place of one that the parser does not take. What is no number is left to it.
func (s *source) number() {
	n := number.FindString(s.in[s.at:])
	after := s.in[s.at+len(n):]
	switch {
	case after != "" && (letter(after[0]) || digit(after[0]) || after[0] == '.'):
		s.copy(1)
	case plainNumber.MatchString(n):
		s.copy(len(n))
	default:
		s.out.WriteByte('0')
		s.at += len(n)
	}
}

// name copies a name or a word of the language. LuaJIT takes letters beyond ASCII, and a break before other statements.
func (s *source) name() {
	n := 0
	for s.at+n < len(s.in) && (letter(s.in[s.at+n]) || digit(s.in[s.at+n])) {
		n++
	}
	word := []byte(s.in[s.at : s.at+n])
	for i, c := range word {
		if c >= 0x80 {
			word[i] = 'a'
		}
	}
	s.at += n
	if string(word) == "break" {
		word = []byte("do break end")
	}
	s.out.Write(word)
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
