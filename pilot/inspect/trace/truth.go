package trace

import (
	"slices"
	"strings"
)

// truth says whether a condition holds. If that depends on what is not known, on says what it is.
type truth struct {
	holds bool
	on    []string
}

func known(holds bool) truth { return truth{holds: holds} }

func unknown(on string) truth { return truth{on: []string{on}} }

// certain and possible report whether the condition holds, and whether it may hold.
func (t truth) certain() bool  { return t.holds && t.on == nil }
func (t truth) possible() bool { return t.holds || t.on != nil }

func (t truth) not() truth { return truth{!t.holds && t.on == nil, t.on} }

// text names what the condition depends on.
func (t truth) text() string {
	list := slices.Clone(t.on)
	slices.Sort(list)
	return strings.Join(slices.Compact(list), " and ")
}

// every reports whether a condition holds for all items of a list.
func every[E any](list []E, f func(E) truth) truth {
	out := known(true)
	for _, e := range list {
		switch t := f(e); {
		case !t.possible():
			return t
		case !t.certain():
			out = truth{on: append(out.on, t.on...)}
		}
	}
	return out
}

// some reports whether a condition holds for at least one item of a list.
func some[E any](list []E, f func(E) truth) truth {
	return every(list, func(e E) truth { return f(e).not() }).not()
}
