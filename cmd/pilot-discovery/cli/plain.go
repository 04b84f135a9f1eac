package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// structured reports whether an output format is for programs, so that texts must stay as they are.
func structured(output string) bool { return output == "json" || output == "yaml" }

// Decode decodes JSON for a command with an output format. Proxies, servers and authors of configuration may have
// written its strings. Unless the output format is for programs, Decode makes each string plain by terminal.Plain, so
// that it can neither change the terminal nor forge a line or a column of a table.
func Decode(text []byte, output string, into any) error {
	if !structured(output) {
		text = plainJSON(text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("failed to read the answer: %w", err)
	}
	return nil
}

// plainJSON makes the strings in JSON plain.
func plainJSON(text []byte) []byte {
	var out bytes.Buffer
	written := 0 // bytes of text that are in out
	for at := 0; ; {
		next := bytes.IndexByte(text[at:], '"')
		if next < 0 {
			break
		}
		begin := at + next
		if at = endOfString(text, begin); at > len(text) {
			break // the text is no JSON
		}
		var s string
		if json.Unmarshal(text[begin:at], &s) != nil {
			continue // the literal is no JSON
		}
		p := terminal.Plain(s)
		if p == s {
			continue
		}
		literal, _ := json.Marshal(p) // cannot fail for a string
		out.Write(text[written:begin])
		out.Write(literal)
		written = at
	}
	if written == 0 {
		return text
	}
	out.Write(text[written:])
	return out.Bytes()
}

// endOfString returns the index behind the string literal that begins with the quote at an index, or more than the
// length of the text if the literal does not end.
func endOfString(text []byte, begin int) int {
	for i := begin + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text) + 1
}

// Warn prints a warning as one line. Proxies, servers and authors of configuration may have written the arguments.
func Warn(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, "warning:", terminal.Plain(fmt.Sprintf(format, args...)))
}
