package facts

import (
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Provider asks for the facts of one kind. Its methods may be called from any goroutine.
type Provider[T any] interface {
	// Want replaces the names of the facts that are needed. It does not wait.
	Want(names []string)

	// Wait returns what is known of the names that are wanted, once each was asked for, or after that time.
	Wait(longest time.Duration) map[string]T

	// Failing returns the names whose last question failed, and why.
	Failing() map[string]string
}

// Change returns the change by which a Provider hands on an answer. The value is frozen. Without one the fact is gone.
func Change[T any](kind *kinds.Kind, name string, value *T) kinds.Change {
	key := kinds.Key{Kind: kind, Name: name}
	if value == nil {
		return kinds.Change{Key: key}
	}
	return kinds.Change{Key: key, Object: &kinds.Object{Key: key, Spec: value}}
}

// Table is the facts of one kind that are in force.
type Table[T any] struct {
	kind     *kinds.Kind
	provider Provider[T]
	wanted   []string
	known    map[string]T
}

// NewTable makes an empty Table of the facts whose changes have that kind. Without a Provider no fact is ever there.
func NewTable[T any](kind *kinds.Kind, p Provider[T]) *Table[T] {
	return &Table[T]{kind: kind, provider: p, known: map[string]T{}}
}

// Want replaces the names of the facts that are needed, which must be sorted. Facts that are not needed any more are
// forgotten. It waits for first answers for at most the patience, and not at all with none.
func (t *Table[T]) Want(names []string, patience time.Duration) {
	if t.provider == nil || slices.Equal(names, t.wanted) {
		return
	}
	t.wanted = names
	for n := range t.known {
		if !t.wants(n) {
			delete(t.known, n)
		}
	}
	t.provider.Want(names)
	if patience <= 0 || len(names) == 0 {
		return
	}
	for n, value := range t.provider.Wait(patience) {
		t.known[n] = value
	}
}

func (t *Table[T]) wants(name string) bool {
	_, found := slices.BinarySearch(t.wanted, name)
	return found
}

// Apply takes the answers out of a batch and returns the other changes.
func (t *Table[T]) Apply(batch []kinds.Change) []kinds.Change {
	answer := func(c kinds.Change) bool { return c.Kind == t.kind }
	if !slices.ContainsFunc(batch, answer) {
		return batch
	}
	for _, c := range batch {
		switch {
		case !answer(c) || !t.wants(c.Name):
		case c.Object == nil:
			delete(t.known, c.Name)
		default:
			t.known[c.Name] = *c.Object.Spec.(*T)
		}
	}
	return slices.DeleteFunc(slices.Clone(batch), answer)
}

// Get returns a fact and reports whether it is there. Without it the consumer must do what is safe.
func (t *Table[T]) Get(name string) (T, bool) {
	value, ok := t.known[name]
	return value, ok
}

// Failing returns the names whose last question failed, and why. It may be called from any goroutine.
func (t *Table[T]) Failing() map[string]string {
	if t.provider == nil {
		return nil
	}
	return t.provider.Failing()
}
