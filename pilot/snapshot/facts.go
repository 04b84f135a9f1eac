package snapshot

import (
	"cmp"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

// Want is a fact that an object needs, and the object.
type Want struct {
	facts.Want
	Object kinds.Key
}

// Fact returns a fact, or nil if it is missing. Then its consumer must fail safely: a security policy must deny.
func (t tables) Fact(k kinds.Key) *kinds.Object {
	f, _ := t.facts.First(func(o *kinds.Object) int { return compareFacts(o.Key, k) })
	return f
}

// Wants calls yield for each need of an object, in the order of facts.
func (s *Snapshot) Wants(yield func(Want) bool) { s.wants.All(yield) }

// WantsOf returns the needs for a fact.
func (s *Snapshot) WantsOf(fact kinds.Key) iter.Seq[Want] { return s.wants.Where(ofFact(fact)) }

func (t tables) wanted(fact kinds.Key) bool {
	_, ok := t.wants.First(ofFact(fact))
	return ok
}

// Wanted returns the facts of a kind that objects need as of the last Apply, sorted by name.
func (b *Builder) Wanted(kind *kinds.Kind) []facts.Need {
	needs, ok := b.wanted[kind]
	if !ok {
		needs = b.findWanted(kind)
		b.wanted[kind] = needs
	}
	return needs
}

func (b *Builder) findWanted(kind *kinds.Kind) (needs []facts.Need) {
	for w := range b.current.wants.Where(func(w Want) int { return cmp.Compare(w.Key.Kind.Name, kind.Name) }) {
		if w.Key.Kind != kind {
			continue
		}
		if len(needs) == 0 || needs[len(needs)-1].Name != w.Key.Name {
			needs = append(needs, facts.Need{Name: w.Key.Name})
		}
		last := &needs[len(needs)-1]
		if i, found := slices.BinarySearch(last.Namespaces, w.Object.Namespace); !found {
			last.Namespaces = slices.Insert(last.Namespaces, i, w.Object.Namespace)
		}
	}
	return needs
}

// ApplyFacts applies answers. It ignores answers that no object needs. A fact with an equal value keeps its old
// pointer.
func (b *Builder) ApplyFacts(answers []kinds.Change) {
	for _, c := range answers {
		was := b.current.Fact(c.Key)
		if !b.current.wanted(c.Key) || was == c.Object || was != nil && c.Object != nil && reflect.DeepEqual(was.Spec, c.Object.Spec) {
			continue
		}
		b.replaceFact(c.Key, was, c.Object)
	}
}

// ApplyServicePorts sets the ServicePort facts that objects need, as of the last ApplyRegistry.
func (b *Builder) ApplyServicePorts() {
	for _, need := range b.Wanted(kinds.ServicePort) {
		name := need.Name
		i := strings.LastIndexByte(name, ':')
		b.ApplyFacts([]kinds.Change{facts.Change(kinds.ServicePort, name, b.hasPort(name[:i], name[i+1:]))})
	}
}

// hasPort returns a pointer to true if a service with that host has the port, or nil.
func (b *Builder) hasPort(host, port string) *bool {
	for s := range b.current.hosts.Where(withHost(host)) {
		for i := range s.Ports {
			if has := strconv.Itoa(int(s.Ports[i].Number)) == port; has {
				return &has
			}
		}
	}
	return nil
}

func (b *Builder) replaceFact(k kinds.Key, was, is *kinds.Object) {
	if _, touched := b.oldFacts[k]; !touched {
		b.oldFacts[k] = was
	}
	if is == nil {
		b.current.facts.Delete(b.edit, was)
	} else {
		b.current.facts.Put(b.edit, is)
	}
	b.markFull("config", k.String())
}

// replaceWants replaces the needs of an object. Either object may be nil.
func (b *Builder) replaceWants(was, is *kinds.Object) {
	if b.catalog == nil {
		return
	}
	if was != nil {
		for _, w := range b.catalog.Wants(was) {
			delete(b.wanted, w.Key.Kind)
			b.current.wants.Delete(b.edit, Want{w, was.Key})
			b.unwanted = append(b.unwanted, w.Key)
		}
	}
	if is != nil {
		for _, w := range b.catalog.Wants(is) {
			delete(b.wanted, w.Key.Kind)
			b.current.wants.Put(b.edit, Want{w, is.Key})
		}
	}
}

// forgetFacts removes the facts that no object needs any more.
func (b *Builder) forgetFacts() {
	for _, k := range b.unwanted {
		if was := b.current.Fact(k); was != nil && !b.current.wanted(k) {
			b.replaceFact(k, was, nil)
		}
	}
}

// factChanges returns the facts that have changed since the last commit, sorted.
func (b *Builder) factChanges() []ConfigChange {
	var list []ConfigChange
	for k, was := range b.oldFacts {
		if is := b.current.Fact(k); is != was {
			list = append(list, ConfigChange{was, is})
		}
	}
	slices.SortFunc(list, func(a, b ConfigChange) int { return compareFacts(a.Key(), b.Key()) })
	return list
}

// Key returns the key of the object.
func (c ConfigChange) Key() kinds.Key {
	if c.New == nil {
		return c.Old.Key
	}
	return c.New.Key
}

func newFacts() frozen.Table[*kinds.Object] {
	return frozen.NewTable(func(a, b *kinds.Object) int { return compareFacts(a.Key, b.Key) })
}

func newWants() frozen.Table[Want] {
	return frozen.NewTable(func(a, b Want) int {
		return cmp.Or(compareFacts(a.Key, b.Key), strings.Compare(
			a.Object.Kind.Name, b.Object.Kind.Name,
		), strings.Compare(a.Object.Namespace, b.Object.Namespace),
			strings.Compare(a.Object.Name, b.Object.Name), strings.Compare(a.Field, b.Field))
	})
}

func ofFact(k kinds.Key) func(Want) int {
	return func(w Want) int { return compareFacts(w.Key, k) }
}

func compareFacts(a, b kinds.Key) int {
	return cmp.Or(strings.Compare(a.Kind.Name, b.Kind.Name), strings.Compare(a.Name, b.Name))
}
