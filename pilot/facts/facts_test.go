package facts_test

import (
	"slices"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

// secretKind is the kind of facts that a Provider of Secrets would make.
var secretKind = &kinds.Kind{Name: "SecretFact"}

// fake is a Provider whose answers a test sets.
type fake struct {
	wanted []string
	waits  []time.Duration
	first  []kinds.Change
}

func (f *fake) Want(needs []facts.Need) {
	f.wanted = nil
	for _, n := range needs {
		f.wanted = append(f.wanted, n.Name)
	}
}

func (f *fake) Wait(longest time.Duration) []kinds.Change {
	f.waits = append(f.waits, longest)
	return f.first
}

func (f *fake) Failing() map[string]facts.Failure {
	return map[string]facts.Failure{"a": {Why: "forbidden"}}
}

// TestTable checks that a fact is available from its answer on, while it is wanted and was not withdrawn, and that
// all others are missing.
func TestTable(t *testing.T) {
	text := func(s string) *string { return &s }
	p := &fake{first: []kinds.Change{facts.Change(secretKind, "a", text("1"))}}
	table := facts.NewTable[string](secretKind, p)
	has := func(name, want string) {
		t.Helper()
		if got, ok := table.Get(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v, want %q", name, got, ok, want)
		}
	}
	apply := func(changes ...kinds.Change) []kinds.Change { return table.Apply(changes) }

	has("a", "")
	table.Want([]string{"a", "b"}, time.Minute)
	has("a", "1")
	has("b", "")
	table.Want([]string{"a", "b"}, time.Minute) // the same names
	if !slices.Equal(p.wanted, []string{"a", "b"}) || !slices.Equal(p.waits, []time.Duration{time.Minute}) {
		t.Errorf("asked for %v, waited %v", p.wanted, p.waits)
	}

	other := kinds.Change{Key: kinds.Key{Kind: kinds.Pod, Namespace: "n", Name: "b"}}
	batch := []kinds.Change{facts.Change(secretKind, "b", text("2")), other, facts.Change(secretKind, "c", text("3"))}
	if rest := apply(batch...); len(rest) != 1 || rest[0] != other || batch[1] != other {
		t.Errorf("the other changes are %v", rest)
	}
	has("b", "2")
	has("c", "") // not wanted
	apply(facts.Change[string](secretKind, "b", nil))
	has("b", "")

	table.Want([]string{"b"}, 0)
	table.Want([]string{"a", "b"}, 0)
	has("a", "") // it was dropped in between
	if len(p.waits) != 1 {
		t.Errorf("waited %v", p.waits)
	}
	if table.Failing()["a"].Why != "forbidden" {
		t.Errorf("failing %v", table.Failing())
	}
}

// TestTableWithoutProvider checks that every fact is missing if there is no Provider.
func TestTableWithoutProvider(t *testing.T) {
	table := facts.NewTable[string](secretKind, nil)
	table.Want([]string{"a"}, time.Minute)
	table.Apply([]kinds.Change{facts.Change(secretKind, "a", new(string))})
	if _, ok := table.Get("a"); ok || table.Failing() != nil {
		t.Error("a fact that nobody asked for is there")
	}
}
