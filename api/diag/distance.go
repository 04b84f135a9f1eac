package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the known name that a mistyped name most likely stands for, or "". The names may differ by two typing
// mistakes, and by fewer if they are short. Case, dashes and underscores are ignored.
func Nearest(name string, known []string) string {
	best, limit := "", min(2, len(name)/2)+1
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, k := range slices.Sorted(slices.Values(known)) {
		if len(k)-len(name) > limit+2 || len(name)-len(k) > limit+2 {
			continue
		}
		if plain(k) == plain(name) {
			return k
		}
		if d := Distance(name, k); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// NearestField returns the known field that an unknown one most likely stands for, or "": the Nearest name, or else the
// only field that has all words of the name or whose words the name has. Words with different endings, such as a
// plural, are equal.
func NearestField(name string, known []string) string {
	if best := Nearest(name, known); best != "" {
		return best
	}
	of, meant := words(name), ""
	if len(of) == 0 {
		return ""
	}
	for _, k := range known {
		if other := words(k); !within(of, other) && !within(other, of) {
			continue
		}
		if meant != "" {
			return ""
		}
		meant = k
	}
	return meant
}

// within reports whether each word of a equals a word of b, or begins like one.
func within(a, b []string) bool {
	return !slices.ContainsFunc(a, func(w string) bool {
		return !slices.ContainsFunc(b, func(v string) bool {
			return v == w || len(v) > 3 && strings.HasPrefix(w, v) || len(w) > 3 && strings.HasPrefix(v, w)
		})
	})
}

// words returns the words of a name such as trafficPolicies or traffic_policy, in lower case and singular.
func words(name string) []string {
	var out []string
	add := func(word string) {
		word = strings.ToLower(word)
		if stem, plural := strings.CutSuffix(word, "ies"); plural {
			word = stem + "y"
		} else if len(word) > 3 && !strings.HasSuffix(word, "ss") {
			word = strings.TrimSuffix(word, "s")
		}
		if word != "" {
			out = append(out, word)
		}
	}
	start := 0
	for i := 1; i <= len(name); i++ {
		switch {
		case i == len(name), isUpper(name[i]) && !isUpper(name[i-1]):
			add(name[start:i])
			start = i
		case name[i] == '_' || name[i] == '-':
			add(name[start:i])
			start = i + 1
		}
	}
	return out
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// DidYouMean returns a Fix that suggests a name.
func DidYouMean(name string) string { return fmt.Sprintf("did you mean %q?", name) }

// UnknownName returns the Fix for an unknown name: the known name that it most likely stands for, or all known names if
// they are few.
func UnknownName(name string, known []string) string {
	if best := NearestField(name, known); best != "" {
		return DidYouMean(best)
	}
	if few := len(known) > 0 && len(known) <= 12; few {
		return "use one of " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	return "remove it"
}

// Distance returns how many bytes must be inserted, deleted, replaced or swapped with their neighbour to turn a into b.
func Distance(a, b string) int {
	before, last, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(last[j]+1, cur[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, last, cur = last, cur, before
	}
	return last[len(b)]
}

// NearNames returns the end of a sentence about a name that is not among all: similar names as ": did you mean a or
// b?", or else the first few names.
func NearNames(name string, all []string) string {
	const few = 5
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	near := slices.DeleteFunc(slices.Clone(all), func(other string) bool {
		return Distance(other, name) > len(name)/3+1 && !strings.Contains(other, strings.SplitN(name, ".", 2)[0])
	})
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(Distance(a, name), Distance(b, name)) })
	switch {
	case len(all) == 0:
		return ": there is none"
	case len(near) > 0:
		return ": did you mean " + strings.Join(near[:min(few, len(near))], " or ") + "?"
	}
	more := ""
	if len(all) > few {
		more = fmt.Sprintf(" and %d more", len(all)-few)
	}
	return ": there are " + strings.Join(all[:min(few, len(all))], ", ") + more
}
