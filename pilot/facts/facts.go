package facts

import (
	"slices"
	"strconv"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Provider asks for the facts of one kind. Its methods may be called from any goroutine.
type Provider interface {
	// Want replaces the facts that are needed. It does not wait. A name that is wanted anew, after it was not, is
	// answered anew, if only by the last answer.
	Want(needs []Need)

	// Wait returns, as changes, the answers to the names that are wanted, once each was asked for, or after that time.
	Wait(longest time.Duration) []kinds.Change

	// Failing returns the names whose last question failed.
	Failing() map[string]Failure
}

// Need is a fact that somebody needs.
type Need struct {
	Name string
	// Namespaces are those of the objects that need it, sorted; nil: it is no object's. Providers take namespaces in
	// turn, so that one which needs much does not delay the others.
	Namespaces []string
}

// Needs returns names as needs of no object.
func Needs(names ...string) []Need {
	needs := make([]Need, len(names))
	for i, n := range names {
		needs[i].Name = n
	}
	return needs
}

// Equal reports whether two needs are the same.
func (n Need) Equal(o Need) bool { return n.Name == o.Name && slices.Equal(n.Namespaces, o.Namespaces) }

// Failure is why a fact cannot be had at present.
type Failure struct {
	Why   string
	Since time.Time // of the first question that failed
}

// Want is a fact that an object needs.
type Want struct {
	Key     kinds.Key // of the fact: its kind and its name
	Field   string    // of the object that says so, for findings
	Without string    // what applies while the fact is missing, for findings; empty where that is as it should be
}

// ServicePort returns the key of the fact that a service of the mesh has a port. It needs no Provider.
func ServicePort(host string, port uint32) kinds.Key {
	return kinds.Key{Kind: kinds.ServicePort, Name: host + ":" + strconv.Itoa(int(port))}
}

// Change returns the change by which a Provider hands on an answer. The value is frozen. Without one the fact is gone.
func Change[T any](kind *kinds.Kind, name string, value *T) kinds.Change {
	key := kinds.Key{Kind: kind, Name: name}
	if value == nil {
		return kinds.Change{Key: key}
	}
	return kinds.Change{Key: key, Object: &kinds.Object{Key: key, Spec: value}}
}

// Value returns the value of a fact and reports whether it is there. Without it the consumer must do what is safe.
func Value[T any](fact *kinds.Object) (value T, ok bool) {
	if fact == nil {
		return value, false
	}
	v, ok := fact.Spec.(*T)
	if !ok {
		return value, false
	}
	return *v, true
}

// Table is the facts of one kind that are in force, for a consumer before the Snapshot. Those that translations read
// are in the Snapshot.
type Table[T any] struct {
	kind     *kinds.Kind
	provider Provider
	wanted   []string
	known    map[string]T
}

// NewTable makes an empty Table of the facts whose changes have that kind. Without a Provider no fact is ever there.
func NewTable[T any](kind *kinds.Kind, p Provider) *Table[T] {
	return &Table[T]{kind: kind, provider: p, known: map[string]T{}}
}

// Want replaces the names of the facts that are needed, which must be sorted. Facts that are not needed any more are
// forgotten. It waits for first answers for at most timeout, and not at all if that is 0.
func (t *Table[T]) Want(names []string, timeout time.Duration) {
	if t.provider == nil || slices.Equal(names, t.wanted) {
		return
	}
	t.wanted = names
	for n := range t.known {
		if !t.wants(n) {
			delete(t.known, n)
		}
	}
	t.provider.Want(Needs(names...))
	if timeout <= 0 || len(names) == 0 {
		return
	}
	t.Apply(t.provider.Wait(timeout))
}

func (t *Table[T]) wants(name string) bool {
	_, found := slices.BinarySearch(t.wanted, name)
	return found
}

// Apply takes the answers out of a batch and returns the other changes.
func (t *Table[T]) Apply(batch []kinds.Change) []kinds.Change {
	answers, others := Split(batch, func(k *kinds.Kind) bool { return k == t.kind })
	for _, c := range answers {
		switch {
		case !t.wants(c.Name):
		case c.Object == nil:
			delete(t.known, c.Name)
		default:
			t.known[c.Name], _ = Value[T](c.Object)
		}
	}
	return others
}

// Split returns the answers in a batch, which are changes of kinds of facts, and the other changes.
func Split(batch []kinds.Change, isFact func(*kinds.Kind) bool) (answers, others []kinds.Change) {
	if !slices.ContainsFunc(batch, func(c kinds.Change) bool { return isFact(c.Kind) }) {
		return nil, batch
	}
	for _, c := range batch {
		if isFact(c.Kind) {
			answers = append(answers, c)
		} else {
			others = append(others, c)
		}
	}
	return answers, others
}

// Get returns a fact and reports whether it is there. Without it the consumer must do what is safe.
func (t *Table[T]) Get(name string) (T, bool) {
	value, ok := t.known[name]
	return value, ok
}

// Failing returns the names whose last question failed. It may be called from any goroutine.
func (t *Table[T]) Failing() map[string]Failure {
	if t.provider == nil {
		return nil
	}
	return t.provider.Failing()
}
