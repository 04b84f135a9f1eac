package limits

import (
	"bytes"
	"iter"
)

// YAMLNodes yields, for each document of a YAML text, the line where it begins, from 1, and an upper bound of the nodes
// that a parser makes of it. It counts characters without parsing, including those within strings. Nodes determine the
// cost of parsing: several hundred bytes each. Anchors and tags cost as much and are counted too.
func YAMLNodes(text []byte) iter.Seq2[int, int] {
	return func(yield func(line, nodes int) bool) {
		c, begin, number := yamlCounter{nodes: 1}, 1, 0
		for len(text) > 0 {
			line := text
			if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
				line = text[:i+1]
			}
			if number++; bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("...")) {
				if !yield(begin, c.nodes) {
					return
				}
				c, begin = yamlCounter{nodes: 1}, number
			}
			c.line(line)
			text = text[len(line):]
		}
		yield(begin, c.nodes)
	}
}

// yamlCounter counts the nodes of one document.
type yamlCounter struct {
	nodes int
	pair  bool // the key and the value of the current entry of a flow collection are counted
	empty bool // the flow collection that was opened last is empty so far
}

func (c *yamlCounter) line(line []byte) {
	for i, sign := range line {
		before, after := byte(' '), byte(' ')
		if i > 0 {
			before = line[i-1]
		}
		if i+1 < len(line) {
			after = line[i+1]
		}
		empty := c.empty
		c.empty = false
		switch sign {
		case ':':
			if bytes.IndexByte([]byte(" \t\r\n,[]{}"), after) >= 0 || bytes.IndexByte([]byte("\"']}"), before) >= 0 {
				c.nodes, c.pair = c.nodes+2, true
			}
		case '{', '[':
			c.nodes, c.pair, c.empty = c.nodes+1, false, true
		case ',', '}', ']':
			if !c.pair && !(empty && sign != ',') {
				c.nodes += 2
			}
			c.pair = false
		case '-', '?', '&', '!':
			if bytes.IndexByte([]byte(" \t,[]{}:-?"), before) >= 0 {
				c.nodes++
				if sign == '?' { // a key, and a value that may be empty
					c.nodes++
				}
			}
		}
	}
}
