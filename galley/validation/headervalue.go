package validation

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// singleLine checks text that becomes part of a request or a response header, in which a control character would end
// the line.
func (p fieldRef) singleLine() bool {
	i := strings.IndexFunc(p.text(), func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
	if i >= 0 {
		p.bad("remove the character", "the text holds the control character %q", p.text()[i])
	}
	return i < 0
}

// commands refuses a text whose commands Istio's webhook cannot parse: %NAME%, %NAME(argument)% or %NAME(["a", "b"])%.
// It returns whether the value can be checked further.
func (p fieldRef) commands() bool {
	if !p.review {
		return true
	}
	rest := p.text()
	for {
		_, command, found := strings.Cut(rest, "%")
		if !found {
			return true
		}
		if after, escaped := strings.CutPrefix(command, "%"); escaped {
			rest = after
			continue
		}
		if rest, found = afterCommand(command); !found {
			p.bad("write %% for a percent sign, or a command such as %REQ(x-name)%", "a percent sign of %q begins no command", p.text())
			return false
		}
	}
}

// afterCommand returns the text behind a command whose first percent sign is removed already. It reports whether s
// begins with a command.
func afterCommand(s string) (rest string, ok bool) {
	i := strings.IndexAny(s, "%(")
	if i < 0 || s[i] == '%' {
		return s[i+1:], i >= 0
	}
	argument := strings.TrimLeft(s[i+1:], " \t")
	if list, is := strings.CutPrefix(argument, "["); is {
		if argument, ok = afterStrings(list); !ok {
			return "", false
		}
		rest, ok = strings.CutPrefix(strings.TrimLeft(argument, " \t"), ")")
	} else if argument != "" { // the first character is always part of the argument
		_, rest, ok = strings.Cut(argument[1:], ")")
	}
	if !ok {
		return "", false
	}
	return strings.CutPrefix(strings.TrimLeft(rest, " \t"), "%")
}

// afterStrings returns the text behind a list of quoted strings whose first bracket is removed already.
func afterStrings(s string) (rest string, ok bool) {
	for {
		text, isText := strings.CutPrefix(strings.TrimLeft(s, " \t"), `"`)
		_, rest, closed := strings.Cut(text, `"`)
		if !isText || !closed {
			return "", false
		}
		rest = strings.TrimLeft(rest, " \t")
		if end, is := strings.CutPrefix(rest, "]"); is {
			return end, true
		}
		if s, ok = strings.CutPrefix(rest, ","); !ok {
			return "", false
		}
	}
}

// headerValue checks the value of a header that a proxy adds. Envoy replaces %COMMAND(argument):length% in it, and
// refuses the whole route configuration for any other percent sign.
func (p fieldRef) headerValue() {
	if !p.singleLine() || !p.commands() {
		return
	}
	p.format(substitution.Header)
	p.older()
}

// format checks a text in which Envoy replaces commands.
func (p fieldRef) format(place substitution.Place) {
	if why, fix := place.Fault(p.text()); why != "" {
		p.tolerated().bad(fix, "%s", why)
	}
}

// older warns of a command that older proxies do not have; such proxies are sent the text without it.
func (p fieldRef) older() {
	if name := substitution.Recent(p.text()); name != "" {
		p.warn("upgrade them, or leave it out", "proxies before Envoy 1.40 do not have the command %s: they write - for it", name)
	}
}
