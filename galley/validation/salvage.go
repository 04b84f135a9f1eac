package validation

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// maxRounds bounds how often an object is checked again after faults were removed from it.
const maxRounds = 12

// salvage changes the tree of an object with errors into one without errors. It removes each wrong field by itself. If
// the object would restrict less without the field, salvage replaces the field by a value that is at least as strict.
// The tables in units.go say which fields those are.
type salvage struct {
	d    *decoder
	kind *kinds.Kind
	root *node
	bare bool // wrong fields are only removed, and not replaced

	settled  map[*node]bool // values that replace wrong ones
	cut      []string       // paths of removed or replaced fields
	replaced []string       // paths of fields that were replaced by a stricter value
	nothing  bool           // nothing of the object can be in force
	patched  bool           // a patch of an EnvoyFilter was removed
}

// step leads from a value to a value within it.
type step struct {
	parent *node
	name   string // name of the field, or anyEntry
	node   *node
}

// anyEntry is the name of a step to an entry of a list.
const anyEntry = "[]"

// run returns the object without its faults, or nil if nothing of it can be in force. faults are the known errors.
func (s *salvage) run(faults []diag.Diagnostic) *kinds.Object {
	s.settled = map[*node]bool{}
	for round := range maxRounds {
		if round == maxRounds-2 { // treat the whole spec as one fault
			faults = []diag.Diagnostic{{Severity: diag.Error, Field: "spec"}}
		}
		if s.remove(faults); s.nothing {
			return nil
		}
		f := &findings{}
		o := s.d.try(s.kind, s.root, f)
		if faults = onlyErrors(f.list); len(faults) == 0 {
			return o
		}
	}
	return nil
}

func onlyErrors(list []diag.Diagnostic) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(list), func(d diag.Diagnostic) bool { return d.Severity != diag.Error })
}

// remove removes the faults of one check from the tree.
func (s *salvage) remove(faults []diag.Diagnostic) {
	faults = s.outside(faults)
	chains, found := make([][]step, len(faults)), make([]bool, len(faults))
	for i, d := range faults { // before positions in lists change
		chains[i], found[i] = s.root.follow(d.Field)
	}
	gone := map[*node]bool{}
	for i, d := range faults {
		chain := chains[i]
		if slices.ContainsFunc(chain, func(at step) bool { return gone[at.node] }) {
			continue
		}
		if len(chain) == 0 || chain[0].name != "spec" {
			s.nothing = true
		}
		if s.nothing {
			return
		}
		if found[i] && d.Code == "WrongType" && unquote(last(chain)) {
			continue // the number is in force
		}
		s.note(d.Field)
		if s.bare && d.Code == "UnknownField" && len(chain) == 1 {
			continue // the message of another control plane lacks the field
		}
		gone[s.removeOne(chain, found[i], d)] = true
	}
	if s.patched && !s.bare {
		s.keepFilters()
	}
}

// note records the path of a field that is left out or replaced.
func (s *salvage) note(path string) {
	if !slices.Contains(s.cut, path) {
		s.cut = append(s.cut, path)
	}
}

// outside removes faults of the metadata and of fields beside metadata and spec. It returns the other faults.
func (s *salvage) outside(faults []diag.Diagnostic) []diag.Diagnostic {
	var left []diag.Diagnostic
	spec := s.root.get("spec")
	for _, d := range faults {
		path := split(d.Field)
		inMetadata := len(path) > 1 && path[0] == "metadata"
		switch {
		case d.Code == "UnknownField" && (len(path) == 1 && path[0] != "spec" || len(path) == 2 && inMetadata):
			if at := s.misplaced(path); at != "" && !s.bare {
				d.Code, d.Field = "", at
				left = append(left, d)
				continue
			}
			s.note(d.Field)
		case inMetadata:
			s.note(d.Field)
			if d.Field == "metadata.name" { // the name is in force as it is written
				continue
			}
			depth := 2
			if path[1] == "labels" || path[1] == "annotations" { // each entry is a field of its own
				depth = 3
			}
			if chain, _ := s.root.follow(d.Field); len(chain) > 1 {
				at := chain[:min(len(chain), depth)]
				at[len(at)-1].parent.drop(last(at))
			}
		default:
			left = append(left, d)
		}
	}
	if (spec == nil || spec.shape == null) && s.root.get("spec") != spec { // a spec that was missing may exist now
		left = slices.DeleteFunc(left, func(d diag.Diagnostic) bool { return d.Code == "MissingField" })
	}
	return left
}

// misplaced removes an unknown field of the object or of its metadata. It moves a field that belongs into the spec
// there. It returns the path at which the spec is then at fault, or "". A spec in the metadata is used as it is. Any
// other field makes a security object faulty, unless it is most likely a misspelt field of the metadata.
func (s *salvage) misplaced(path []string) string {
	holder, name := s.root, path[len(path)-1]
	if len(path) > 1 {
		holder = s.root.get(path[0])
	}
	v := holder.get(name)
	if v == nil { // it was written twice
		return ""
	}
	holder.drop(v)
	spec := s.root.get("spec")
	missing := spec == nil || spec.shape == null
	ours := hasField(s.kind, name)
	switch {
	case name == "spec" && missing:
		s.root.set("spec", v)
		return ""
	case !ours && (!s.kind.Security || len(path) > 1 && metadataField(name)):
		return ""
	case missing:
		spec = &node{pos: v.pos, shape: mapping}
		s.root.set("spec", spec)
	}
	if ours && spec.shape == mapping && spec.get(name) == nil {
		spec.set(name, v)
		return "spec." + name
	}
	return "spec"
}

// metadataField reports whether a name is most likely a misspelt field of the metadata.
func metadataField(name string) bool {
	fields := map[string]reflect.Type{}
	jsonFields(reflect.TypeFor[metav1.ObjectMeta](), fields)
	return diag.Nearest(name, slices.Collect(maps.Keys(fields))) != ""
}

// removeOne removes one fault, and returns the removed or replaced value. found reports whether the chain leads to the
// faulty field itself, and not only to the enclosing value.
func (s *salvage) removeOne(chain []step, found bool, d diag.Diagnostic) *node {
	at := len(chain) - 1
	if d.Code == "UnknownField" && found && !s.kind.Security {
		if name := s.misspelt(chain); name != "" && !s.bare {
			chain[at].parent.rename(chain[at].node, name)
			chain[at].name = name
		} else if _, u := s.unit(chain[:at]); u == nil || !u.exact {
			// istiod does not know the field either, so the object means the same without it.
			chain[at].parent.drop(chain[at].node)
			return chain[at].node
		}
	}
	for at >= 0 {
		here := chain[at]
		k, u := s.unit(chain[:at+1])
		switch {
		case u == nil, k < at && u.loose(chain[k+1:at+1]):
			if at == 0 {
				s.nothing = true
				return here.node
			}
			here.parent.drop(here.node)
		case k < at: // too important to be missing
			at--
			continue
		case s.settled[here.node]: // the replacement is wrong too
			at--
			continue
		default:
			if u.close != nil && !s.bare {
				s.settled[here.node] = true
				closed := u.close(s, chain[:at+1], u.field(chain, k, d.Field))
				if closed && !slices.Contains(s.replaced, d.Field) {
					s.replaced = append(s.replaced, d.Field)
				}
				if closed || s.nothing {
					return here.node
				}
			}
			if at == 0 {
				s.nothing = true
				return here.node
			}
			here.parent.drop(here.node)
		}
		if here.name != anyEntry || len(here.parent.items) > 0 {
			return here.node
		}
		at-- // an empty list and a list without this entry differ in meaning
	}
	s.nothing = true
	return nil
}

// misspelt returns the name of the unit that the unknown field at the end of the chain is most likely meant for, or "".
func (s *salvage) misspelt(chain []step) string {
	at := len(chain) - 1
	for _, u := range units(s.kind) {
		i := strings.LastIndexByte(u.path, '.')
		if i < 0 || !matches(u.path[:i], chain[:at]) {
			continue
		}
		if name := u.path[i+1:]; name != "*" && chain[at].parent.get(name) == nil && diag.NearestField(chain[at].name, []string{name}) != "" {
			return name
		}
	}
	return ""
}

// unit returns the innermost unit that contains the last value of a chain, and the index of the unit's value in the
// chain. The unit is nil if there is none.
func (s *salvage) unit(chain []step) (int, *unit) {
	list := units(s.kind)
	for k := len(chain) - 1; k >= 0; k-- {
		for i := range list {
			if matches(list[i].path, chain[:k+1]) {
				return k, &list[i]
			}
		}
	}
	return 0, nil
}

// loose reports whether a value within the unit can be removed by itself.
func (u *unit) loose(chain []step) bool {
	return slices.ContainsFunc(u.free, func(p string) bool {
		prefix, deep := strings.CutSuffix(p, ".**")
		top := chain
		if n := strings.Count(prefix, ".") + 1; deep && len(chain) > n {
			top = chain[:n]
		}
		return matches(prefix, top)
	})
}

// field returns the name of the unit's field that is at fault or missing, or "" if the unit as a whole is at fault.
func (u *unit) field(chain []step, k int, path string) string {
	if k+1 < len(chain) {
		return chain[k+1].name
	}
	if steps := split(path); k+1 < len(steps) {
		return steps[k+1]
	}
	return ""
}

// matches reports whether the names of a chain match a pattern, such as "spec.http.[].match". A * in the pattern
// matches any name.
func matches(pattern string, chain []step) bool {
	if strings.Count(pattern, ".")+1 != len(chain) {
		return false
	}
	i := 0
	for name := range strings.SplitSeq(pattern, ".") {
		if name != "*" && name != chain[i].name {
			return false
		}
		i++
	}
	return true
}

// split returns the names and indices of the path of a finding.
func split(path string) []string {
	var out []string
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			if quoted, err := strconv.QuotedPrefix(rest); err == nil {
				name, _ := strconv.Unquote(quoted)
				out, path = append(out, name), strings.TrimPrefix(rest[len(quoted):], "]")
				continue
			}
			name, rest, _ := strings.Cut(rest, "]")
			out, path = append(out, name), rest
			continue
		}
		path = strings.TrimPrefix(path, ".")
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		out, path = append(out, path[:end]), path[end:]
	}
	return out
}

// follow returns the steps to the value at the path of a finding. It reports false if only an enclosing value exists.
func (n *node) follow(path string) ([]step, bool) {
	var chain []step
	for _, name := range split(path) {
		next := step{parent: n, name: name}
		if i, err := strconv.Atoi(name); err == nil && n.shape == list {
			if i < 0 || i >= len(n.items) {
				return chain, false
			}
			next.name, next.node = anyEntry, n.items[i]
		} else if next.node = n.get(name); next.node == nil {
			return chain, false
		}
		chain, n = append(chain, next), next.node
	}
	return chain, len(chain) > 0
}

// drop removes a value from a list or a mapping, and from a mapping also the other fields of the same name.
func (n *node) drop(v *node) {
	n.items = slices.DeleteFunc(n.items, func(i *node) bool { return i == v })
	for _, f := range n.fields {
		if f.value == v {
			n.fields = slices.DeleteFunc(n.fields, func(g field) bool { return g.name == f.name })
			return
		}
	}
}

// rename gives the field of a mapping that has the value v another name.
func (n *node) rename(v *node, name string) {
	for i := range n.fields {
		if n.fields[i].value == v {
			n.fields[i].name = name
		}
	}
}

// set sets a field of a mapping.
func (n *node) set(name string, v *node) {
	n.fields = append(slices.DeleteFunc(n.fields, func(f field) bool { return f.name == name }), field{n.pos, name, v})
}

// keep removes the fields of a mapping that do not have one of the names.
func (n *node) keep(names ...string) {
	n.fields = slices.DeleteFunc(n.fields, func(f field) bool { return !slices.Contains(names, f.name) })
}

// become replaces a value by another one but keeps its position in the text.
func (n *node) become(v *node) {
	at := n.pos
	*n = *v
	n.pos = at
}

// parsed returns the tree of a constant JSON text. It panics if the text is not valid.
func parsed(text string) *node {
	n, err := parseJSON([]byte(text), 10)
	if err != nil {
		panic(err)
	}
	return n
}

func word(s string) *node { return &node{shape: text, value: s} }
