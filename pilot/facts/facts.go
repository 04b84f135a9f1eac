package facts

import (
	"slices"
	"strconv"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Provider gets the facts of one kind. Its methods may be called from any goroutine.
type Provider interface {
	// Want replaces the needed facts. It does not wait. A name that returns after it was not needed is answered again,
	// with the last answer if that is recent.
	Want(needs []Need)

	// Wait waits until each wanted name was asked for once, or for at most timeout. It returns the answers as changes.
	Wait(timeout time.Duration) []kinds.Change

	// Failing returns the names whose last attempt failed.
	Failing() map[string]Failure
}

// Need is a fact that some object needs.
type Need struct {
	Name string
	// Namespaces are the namespaces of the objects that need it, sorted. It is nil if no object does. Providers are
	// fair among namespaces, so that one that needs much does not delay the others.
	Namespaces []string
}

// Needs returns a Need without namespaces for each name.
func Needs(names ...string) []Need {
	needs := make([]Need, len(names))
	for i, n := range names {
		needs[i].Name = n
	}
	return needs
}

// Equal reports whether two needs are the same.
func (n Need) Equal(o Need) bool { return n.Name == o.Name && slices.Equal(n.Namespaces, o.Namespaces) }

// Failure says why a fact is unavailable.
type Failure struct {
	Why   string
	Since time.Time // time of the first attempt that failed
}

// Want is a fact that an object needs.
type Want struct {
	Key   kinds.Key // kind and name of the fact
	Field string    // path of the object's field that names it, for findings
	// Without says what applies while the fact is missing, for findings. It is empty if that is not worth a finding.
	Without string
}

// ServicePort returns the key of the fact that a service of the mesh has a port. It needs no Provider.
func ServicePort(host string, port uint32) kinds.Key {
	return kinds.Key{Kind: kinds.ServicePort, Name: host + ":" + strconv.Itoa(int(port))}
}

// Change returns the change by which a Provider reports an answer. The value must not be modified afterwards. If it
// is nil, the fact is gone.
func Change[T any](kind *kinds.Kind, name string, value *T) kinds.Change {
	key := kinds.Key{Kind: kind, Name: name}
	if value == nil {
		return kinds.Change{Key: key}
	}
	return kinds.Change{Key: key, Object: &kinds.Object{Key: key, Spec: value}}
}

// Value returns the value of a fact. ok is false if the fact is missing. Its consumer must then do what is safe.
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

// Table holds the facts of one kind that are in force, for a consumer that runs before the Snapshot is built. Facts
// that translations read are in the Snapshot.
type Table[T any] struct {
	kind     *kinds.Kind
	provider Provider
	wanted   []string
	known    map[string]T
}

// NewTable returns an empty Table of the facts with changes of a kind. If the Provider is nil, every fact is missing.
func NewTable[T any](kind *kinds.Kind, p Provider) *Table[T] {
	return &Table[T]{kind: kind, provider: p, known: map[string]T{}}
}

// Want replaces the names of the needed facts, which must be sorted. Facts that are no longer needed are dropped.
// Want waits for first answers for at most timeout, and not at all if timeout is 0.
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

// Apply applies the answers in a batch and returns the other changes.
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

// Split splits a batch into answers, which are changes of kinds of facts, and other changes.
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

// Get returns a fact and reports whether it is available. If it is not, the consumer must do what is safe.
func (t *Table[T]) Get(name string) (T, bool) {
	value, ok := t.known[name]
	return value, ok
}

// Failing returns the names whose last attempt failed. It may be called from any goroutine.
func (t *Table[T]) Failing() map[string]Failure {
	if t.provider == nil {
		return nil
	}
	return t.provider.Failing()
}
