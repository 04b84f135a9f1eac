package matches

import (
	"regexp"
	"regexp/syntax"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// form says how a Text describes its values.
type form int

const (
	every form = iota // every value
	exact
	prefix
	pattern
)

// Text is a set of values of a header, a path or another part of a request.
type Text struct {
	form  form
	text  string // the value, the prefix, or the pattern as it is written
	fold  bool   // the case of letters does not matter
	whole *regexp.Regexp

	// The fields below describe patterns.
	head string         // every value begins with it
	open *regexp.Regexp // matches the beginning of a text p if the pattern matches p followed by anything; nil if that is not known
}

// TextOf returns the values that a match takes. A nil match takes all.
func TextOf(m *networkingv1alpha3.StringMatch) Text {
	switch t := m.GetMatchType().(type) {
	case *networkingv1alpha3.StringMatch_Exact:
		return Text{form: exact, text: t.Exact}
	case *networkingv1alpha3.StringMatch_Prefix:
		if t.Prefix != "" { // an empty prefix tests presence
			return Text{form: prefix, text: t.Prefix}
		}
	case *networkingv1alpha3.StringMatch_Regex:
		if t.Regex != "*" { // it tests presence too, and is no regular expression
			return patternOf(t.Regex)
		}
	}
	return Text{}
}

// patternOf returns the values that a regular expression matches as a whole. A literal becomes exact, and a literal
// before ".*" a prefix.
func patternOf(text string) Text {
	t := Text{form: pattern, text: text}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return t
	}
	t.whole = regexp.MustCompile("^(?:" + text + ")$")
	parts := trimAnchors(flatten(parsed))
	if len(parts) > 0 && literal(parts[0]) {
		t.head = string(parts[0].Rune)
	}
	last := len(parts) - 1
	switch {
	case last < 0:
		return Text{form: exact}
	case last == 0 && literal(parts[0]):
		return Text{form: exact, text: t.head}
	case !anything(parts[last]):
		return t
	case parts[last].Op == syntax.OpStar && (last == 0 || last == 1 && literal(parts[0])):
		return Text{form: prefix, text: t.head}
	}
	var begin strings.Builder
	begin.WriteString("^")
	for _, p := range parts[:last] {
		if asserts(p) {
			return t // it may look beyond the text that it is tried on
		}
		begin.WriteString("(?:" + p.String() + ")")
	}
	if parts[last].Op == syntax.OpPlus {
		begin.WriteString(".")
	}
	t.open = regexp.MustCompile(begin.String())
	return t
}

// flatten returns the parts of an expression that follow each other.
func flatten(e *syntax.Regexp) []*syntax.Regexp {
	switch e.Op {
	case syntax.OpEmptyMatch:
		return nil
	case syntax.OpCapture:
		return flatten(e.Sub[0])
	case syntax.OpConcat:
		var parts []*syntax.Regexp
		for _, s := range e.Sub {
			parts = append(parts, flatten(s)...)
		}
		return parts
	}
	return []*syntax.Regexp{e}
}

// trimAnchors removes assertions of the begin and the end of the text at these places.
func trimAnchors(parts []*syntax.Regexp) []*syntax.Regexp {
	for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts = parts[1:]
	}
	for len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText {
		parts = parts[:len(parts)-1]
	}
	return parts
}

func literal(e *syntax.Regexp) bool { return e.Op == syntax.OpLiteral && e.Flags&syntax.FoldCase == 0 }

// anything reports whether an expression is ".*" or ".+".
func anything(e *syntax.Regexp) bool {
	return (e.Op == syntax.OpStar || e.Op == syntax.OpPlus) &&
		(e.Sub[0].Op == syntax.OpAnyChar || e.Sub[0].Op == syntax.OpAnyCharNotNL)
}

// asserts reports whether a part of an expression tests what is around it.
func asserts(e *syntax.Regexp) bool {
	switch e.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	for _, s := range e.Sub {
		if asserts(s) {
			return true
		}
	}
	return false
}

// ignoringCase returns the values of t in any case. It is not for patterns.
func (t Text) ignoringCase() Text {
	t.fold = strings.ToLower(t.text) != strings.ToUpper(t.text)
	t.text = strings.ToLower(t.text)
	return t
}

// Contains reports whether t has all values of o.
func (t Text) Contains(o Text) bool {
	if t.form == every {
		return true
	}
	if o.form == every {
		return t.form == prefix && t.text == ""
	}
	if t.form == pattern {
		switch {
		case o.form == pattern && o.text == t.text:
			return true
		case o.fold || t.whole == nil:
			return false
		case o.form == exact:
			return t.whole.MatchString(o.text)
		case o.form == prefix:
			return t.open != nil && t.open.MatchString(o.text)
		}
		return t.open != nil && t.open.MatchString(o.head)
	}
	text := o.text
	if o.form == pattern {
		text = o.head
	}
	switch {
	case t.fold:
		text = strings.ToLower(text)
	case o.fold && t.form == prefix: // the text of o is in lower case
		return strings.ToLower(t.text) == strings.ToUpper(t.text) && strings.HasPrefix(text, t.text)
	case o.fold:
		return false
	}
	if t.form == prefix {
		return strings.HasPrefix(text, t.text)
	}
	return o.form == exact && text == t.text
}

// hasEmpty reports whether the empty value is one of the values. It is for a Text that does not test presence.
func (t Text) hasEmpty() bool {
	return t.form != pattern && t.text == "" || t.form == pattern && t.whole != nil && t.whole.MatchString("")
}
