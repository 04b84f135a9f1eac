package names

import "slices"

// Distinct is a list of strings, each once. The zero value is empty.
type Distinct struct {
	List []string
	seen map[string]struct{} // nil while there are few strings
}

// few is the number of strings up to which they are searched linearly.
const few = 16

// Add appends a string and reports whether it is new.
func (d *Distinct) Add(s string) bool {
	if d.seen == nil && len(d.List) < few {
		if slices.Contains(d.List, s) {
			return false
		}
		d.List = append(d.List, s)
		return true
	}
	if d.seen == nil {
		d.seen = make(map[string]struct{}, 2*few)
		for _, had := range d.List {
			d.seen[had] = struct{}{}
		}
	}
	if _, ok := d.seen[s]; ok {
		return false
	}
	d.seen[s] = struct{}{}
	d.List = append(d.List, s)
	return true
}
