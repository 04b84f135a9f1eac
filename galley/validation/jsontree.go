package validation

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// jsonReader parses JSON text that is known to be valid into a tree without positions.
type jsonReader struct {
	text   string // strings without escapes are slices of it
	at     int
	depth  int
	values int
}

// Errors of text that exceeds a bound.
var (
	errDeep = errors.New("values are nested too deeply")
	errMany = fmt.Errorf("the object holds more than %d values", valueBudget)
)

// parseJSON returns the tree of a JSON text, in time and memory proportional to it.
func parseJSON(data []byte, maxDepth int) (*node, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	if !json.Valid(data) {
		return nil, errors.New("not valid JSON")
	}
	r := &jsonReader{text: string(data), depth: maxDepth}
	return r.value()
}

func (r *jsonReader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

func (r *jsonReader) value() (*node, error) {
	if r.values++; r.values > valueBudget {
		return nil, errMany
	}
	r.space()
	switch c := r.text[r.at]; c {
	case '{':
		return r.mapping()
	case '[':
		return r.list()
	case '"':
		return &node{shape: text, value: r.str()}, nil
	case 't', 'f', 'n':
		start := r.at
		r.at += len("true")
		if c == 'f' {
			r.at++
		}
		if c == 'n' {
			return &node{shape: null}, nil
		}
		return &node{shape: boolean, value: r.text[start:r.at], plain: true}, nil
	}
	start := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.0123456789eE", r.text[r.at]) >= 0 {
		r.at++
	}
	return &node{shape: number, value: r.text[start:r.at], plain: true}, nil
}

func (r *jsonReader) mapping() (*node, error) {
	if r.depth--; r.depth < 0 {
		return nil, errDeep
	}
	out := &node{shape: mapping}
	for r.at++; ; r.at++ { // behind { or ,
		if r.space(); r.text[r.at] == '}' {
			break
		}
		name := r.str()
		r.space()
		r.at++ // the colon
		if len(out.fields) == 0 {
			out.fields = make([]field, 0, 4)
		}
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		out.fields = append(out.fields, field{name: name, value: v})
		if r.space(); r.text[r.at] == '}' {
			break
		}
	}
	r.at++
	r.depth++
	return out, nil
}

func (r *jsonReader) list() (*node, error) {
	if r.depth--; r.depth < 0 {
		return nil, errDeep
	}
	out := &node{shape: list}
	for r.at++; ; r.at++ { // behind [ or ,
		if r.space(); r.text[r.at] == ']' {
			break
		}
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, v)
		if r.space(); r.text[r.at] == ']' {
			break
		}
	}
	r.at++
	r.depth++
	return out, nil
}

// str reads a string with its quotes.
func (r *jsonReader) str() string {
	start := r.at
	plain := true
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			plain = false
			r.at++
		}
	}
	r.at++
	if plain {
		return r.text[start+1 : r.at-1]
	}
	var s string
	if err := json.Unmarshal([]byte(r.text[start:r.at]), &s); err != nil {
		return "" // the text is valid
	}
	return s
}
