package substitution

import "strings"

// Part is a literal text or one command of a text. Command is empty for a literal.
type Part struct {
	Literal           string
	Command, Argument string
	Length            int // limit of the value; 0 if there is none
}

// Parts returns the literals and the commands of a text in their order. It returns false if Envoy would refuse the
// text.
func Parts(text string) (list []Part, ok bool) {
	end := 0
	literal := func(text string) {
		if text != "" {
			list = append(list, Part{Literal: strings.ReplaceAll(text, "%%", "%")})
		}
	}
	broken := visit(text, func(c command) bool {
		literal(text[end:c.start])
		list = append(list, Part{Command: c.name, Argument: c.argument, Length: c.limit})
		end = c.start + c.size
		return true
	})
	literal(text[end:])
	return list, broken == ""
}
