package featuretest

import (
	"maps"
	"slices"
	"strings"
)

// changes are differences of resources: the proxies, by type and name of a resource and by the text of the difference.
type changes map[string]map[string][]string

// add adds the resources of a proxy.
func (c changes) add(proxy string, before, after map[string]any) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for name := range all {
		d := resourceDiff(before[name], after[name])
		if d == "" {
			continue
		}
		if c[name] == nil {
			c[name] = map[string][]string{}
		}
		c[name][d] = append(c[name][d], proxy)
	}
}

func (c changes) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for _, d := range slices.Sorted(maps.Keys(c[name])) {
			b.WriteString("== " + name + " of " + strings.Join(c[name][d], ", ") + "\n" + d)
		}
	}
	return b.String()
}

// resourceDiff returns the difference of a resource, which may be nil before or after.
func resourceDiff(before, after any) string {
	d := &differ{}
	switch {
	case after == nil:
		d.line("-", 0, "...")
	case before == nil:
		d.lines("+", 0, block(after, columns))
	default:
		d.nested(0, before, after)
	}
	return d.String()
}

// differ writes the difference of a value: the parts that differ, and the values that contain them. A line begins with
// "-" for the old value and with "+" for the new one. In a list, unchanged neighbours of the differing items show
// the position.
type differ struct{ strings.Builder }

func (d *differ) line(sign string, depth int, text string) {
	d.WriteString(sign + " " + strings.Repeat("  ", depth) + text + "\n")
}

func (d *differ) lines(sign string, depth int, lines []string) {
	for _, l := range lines {
		d.line(sign, depth, l)
	}
}

// gone writes a removed value, in one line if it is long.
func (d *differ) gone(depth int, lines []string, short string) {
	if len(lines) > maxGone {
		lines = []string{short}
	}
	d.lines("-", depth, lines)
}

const maxGone = 4

func (d *differ) nested(depth int, was, is any) {
	if m, ok := was.(map[string]any); ok {
		d.maps(depth, m, is.(map[string]any))
	} else {
		d.lists(depth, was.([]any), is.([]any))
	}
}

// nests reports whether the difference of two values is in a nested value that both have.
func nests(was, is any) bool {
	switch was.(type) {
	case map[string]any:
		_, ok := is.(map[string]any)
		return ok
	case []any:
		_, ok := is.([]any)
		return ok
	}
	return false
}

func (d *differ) maps(depth int, before, after map[string]any) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, k := range keys(all) {
		was, had := before[k]
		is, has := after[k]
		if had && has && flow(was) == flow(is) {
			continue
		}
		if had && has && nests(was, is) && len(k)+len(flow(is)) > columns-2*depth {
			d.line(" ", depth, k+":")
			d.nested(depth+1, was, is)
			continue
		}
		if had {
			d.gone(depth, entry(k, was, columns-2*depth), k+": "+short(was, columns-2*depth))
		}
		if has {
			d.lines("+", depth, entry(k, is, columns-2*depth))
		}
	}
}

func (d *differ) lists(depth int, before, after []any) {
	width := columns - 2*depth
	pairs := align(before, after)
	j, differs, unshown, above := 0, false, any(nil), ""
	place := func() { // shows the item before the difference
		if differs = true; unshown != nil {
			d.line(" ", depth, "- "+short(unshown, width))
			unshown = nil
		}
	}
	add := func(until int) {
		for ; j < until; j++ {
			place()
			d.lines("+", depth, item(after[j], width))
		}
	}
	for i, was := range before {
		if pairs[i] < 0 {
			place()
			d.gone(depth, item(was, width), "- "+short(was, width))
			continue
		}
		add(pairs[i])
		is := after[j]
		j++
		switch {
		case flow(was) != flow(is):
			place()
			d.line(" ", depth, "- "+short(is, width))
			inside := &differ{}
			if inside.nested(depth+1, was, is); inside.String() == above {
				d.line(" ", depth+1, "as above")
			} else {
				above = inside.String()
				d.WriteString(above)
			}
		case differs:
			d.line(" ", depth, "- "+short(is, width))
			differs = false
		default:
			unshown = is
		}
	}
	add(len(after))
}

// align returns for each item of a list the index of the corresponding item of another list, or -1: the same item if
// possible, else one with the same identity. The order is kept.
func align(before, after []any) []int {
	score := func(a, b any) int {
		switch {
		case flow(a) == flow(b):
			return 3
		case nests(a, b) && flow(identity(a)) == flow(identity(b)):
			return 1
		}
		return 0
	}
	// best[i][j] is the highest score of before[i:] and after[j:].
	best := make([][]int, len(before)+1)
	for i := range best {
		best[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if s := score(before[i], after[j]); s > 0 {
				best[i][j] = max(best[i][j], s+best[i+1][j+1])
			}
		}
	}
	pairs := make([]int, len(before))
	j := 0
	for i := range before {
		for pairs[i] = -1; j < len(after) && best[i][j] == best[i][j+1]; {
			j++
		}
		if j < len(after) && best[i][j] != best[i+1][j] {
			pairs[i], j = j, j+1
		}
	}
	return pairs
}

// identity returns the part of a value that identifies it in a list.
func identity(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	id := map[string]any{}
	for _, k := range []string{"name", "filterChainMatch", "match", "endpoint"} {
		if m[k] != nil {
			id[k] = m[k]
		}
	}
	return id
}

// short returns a value in one line, or only its identity if it does not fit.
func short(v any, columns int) string {
	s := flow(v)
	if len(s) <= columns || isScalar(v) {
		return s
	}
	if id, ok := identity(v).(map[string]any); ok && len(id) > 0 {
		return strings.TrimSuffix(flow(id), "}") + ", ...}"
	}
	return "..."
}
