package ui

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// maxRows bounds the rows of one answer.
const maxRows = 500

// page selects rows of a list.
type page struct {
	text, namespace, state string // filters: a part of the name, the namespace and the state; empty for all
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

// key returns a cache key for the selection.
func (p page) key() string {
	return fmt.Sprintf("%q %q %q %d %d", p.text, p.namespace, p.state, p.offset, p.limit)
}

// row is an element of a list that can be filtered.
type row interface {
	// matches reports whether a filter selects the row. text is in lower case.
	matches(text, namespace, state string) bool
}

// rows is the selected part of a list.
type rows[T any] struct {
	Total  int `json:"total"` // number of rows that pass the filter
	All    int `json:"all"`
	Offset int `json:"offset"`
	Rows   []T `json:"rows"`
}

// rowsOf returns the selected rows.
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
