package ui

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// maxRows is how many rows one answer has at most.
const maxRows = 500

// page is which rows a request asks for.
type page struct {
	text, namespace, state string // filters: a part of the name, and what the rows have; empty: all
	offset, limit          int
}

func pageOf(q url.Values) (page, error) {
	p := page{text: strings.ToLower(q.Get("q")), namespace: q.Get("namespace"), state: q.Get("state"), limit: 100}
	for name, to := range map[string]*int{"offset": &p.offset, "limit": &p.limit} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return p, fmt.Errorf("%w: %s=%s is no number", errQuery, name, text)
		}
		*to = int(n)
	}
	p.limit = min(p.limit, maxRows)
	if len(p.text)+len(p.namespace)+len(p.state) > 1024 {
		return p, fmt.Errorf("%w: it is too long", errQuery)
	}
	return p, nil
}

// key says which rows these are, for those who ask for the same.
func (p page) key() string {
	return fmt.Sprintf("%q %q %q %d %d", p.text, p.namespace, p.state, p.offset, p.limit)
}

// row is what can be filtered.
type row interface {
	// matches reports whether a filter selects the row. text is in lower case.
	matches(text, namespace, state string) bool
}

// rows is a part of a list.
type rows[T any] struct {
	Total  int `json:"total"` // that the filter selects
	All    int `json:"all"`
	Offset int `json:"offset"`
	Rows   []T `json:"rows"`
}

// rowsOf returns the rows that a request asks for.
func rowsOf[T row](list []T, p page) rows[T] {
	out := rows[T]{All: len(list), Offset: p.offset, Rows: []T{}}
	for _, r := range list {
		if !r.matches(p.text, p.namespace, p.state) {
			continue
		}
		if out.Total >= p.offset && len(out.Rows) < p.limit {
			out.Rows = append(out.Rows, r)
		}
		out.Total++
	}
	return out
}
