package poll

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

// Options of a Poller.
type Options[T any] struct {
	Kind    *kinds.Kind    // of the facts
	Handler config.Handler // gets the answers that differ from the last ones; called from several goroutines
	Logger  *slog.Logger

	// Ask asks for the fact of a name. It ends when ctx does. An error says why there is none.
	Ask func(ctx context.Context, name string) (T, error)

	Every   time.Duration // how often a name is asked for
	Retry   time.Duration // how soon after the first question that failed
	Longest time.Duration // what Retry doubles up to as a name goes on failing
	Age     time.Duration // how long the last good answer counts while a name fails; 0: for ever

	// Limits bound the questions that are open at a time. A namespace has at most as many as are left for the others:
	// names whose server does not answer must not keep those of other namespaces waiting. Zero is the default.
	Limits limits.Limits

	// Bounds of what the objects of one namespace may need. A name is beyond them if it is for every namespace that
	// needs it. It is not asked for, or its answer is not taken, and it counts as one that fails.
	Names int         // names, in their order
	Bytes int         // of all answers
	Size  func(T) int // of an answer, in bytes; nil: there are no bounds
}

// kept is how long a name that nobody wants any more is remembered, so that one which comes and goes is not asked for
// each time.
const kept = time.Minute

// Poller is a facts.Provider.
type Poller[T any] struct {
	o     Options[T]
	wake  chan struct{}
	ended chan struct{} // closed when Run has ended

	mu    sync.Mutex
	all   int            // questions that are open
	open  map[string]int // the same, by the namespace whose turn each was
	bytes map[string]int // of the answers that are in force, by the namespaces that need them
	names map[string]*name[T]
	idle  map[string]*name[T] // that nobody wants any more
}

// name is one that is wanted.
type name[T any] struct {
	name     string
	of       []string // the namespaces that need it
	turn     string   // the one of them whose turn the open question is
	answer   *T       // the last good one, or nil; replaced and never changed
	good     time.Time
	tried    chan struct{} // closed once it was asked for
	asking   bool
	again    bool // the answer is to be handed on again
	beyond   bool // it is beyond the bounds, and not asked for
	unwanted time.Time
	due      time.Time
	failures int           // since the last good answer
	failure  facts.Failure // the last of them, and when the first was
}

// New makes a Poller that wants nothing.
func New[T any](o Options[T]) *Poller[T] {
	if o.Limits == (limits.Limits{}) {
		o.Limits = limits.Default()
	}
	return &Poller[T]{o: o, wake: make(chan struct{}, 1), ended: make(chan struct{}), open: map[string]int{}, bytes: map[string]int{}, names: map[string]*name[T]{}, idle: map[string]*name[T]{}}
}

// Want replaces the names that are asked for. It does not wait.
func (p *Poller[T]) Want(needs []facts.Need) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	next := make(map[string]*name[T], len(needs))
	for _, need := range needs {
		s := need.Name
		n := p.names[s]
		if idle := p.idle[s]; n == nil && idle != nil && now.Sub(idle.unwanted) < kept {
			n = idle
			n.again = n.answer != nil
		}
		if n == nil {
			n = &name[T]{name: s, tried: make(chan struct{}), due: now}
		}
		n.of = need.Namespaces
		next[s] = n
		delete(p.idle, s)
	}
	p.bound(next, needs, now)
	for s, n := range p.names {
		if next[s] == nil {
			n.unwanted = now
			p.idle[s] = n
		}
	}
	maps.DeleteFunc(p.idle, func(_ string, n *name[T]) bool { return now.Sub(n.unwanted) >= kept })
	p.names = next
	p.look()
}

// bound finds which of the names that are wanted now are beyond the bounds. Those have no answer from now on. The
// caller holds mu.
func (p *Poller[T]) bound(next map[string]*name[T], needs []facts.Need, now time.Time) {
	count := map[string]int{}
	clear(p.bytes)
	for _, need := range needs {
		n := next[need.Name]
		for _, ns := range n.of {
			count[ns]++
		}
		beyond := p.o.Size != nil && !some(n.of, func(ns string) bool { return count[ns] <= p.o.Names })
		if beyond && !n.beyond {
			n.failures, n.failure = 1, facts.Failure{Why: fmt.Sprintf("namespace %s needs more than %d of them", n.of[0], p.o.Names), Since: now}
			n.drop()
			n.try()
		} else if n.beyond && !beyond {
			n.failures, n.due = 0, now
		}
		n.beyond = beyond
		if n.answer != nil && p.charge(n, nil, *n.answer) != nil {
			n.drop()
			n.due = now
		}
	}
}

// some reports whether a name that the namespaces need is within the bounds of one of them, or is no object's.
func some(of []string, within func(namespace string) bool) bool {
	return len(of) == 0 || slices.ContainsFunc(of, within)
}

// charge counts an answer in the place of the last one, nil for none. It is an error, and nothing is counted, if the
// answers have too many bytes then. The caller holds mu.
func (p *Poller[T]) charge(n *name[T], last *T, answer T) error {
	if p.o.Size == nil {
		return nil
	}
	by := p.o.Size(answer)
	if last != nil {
		by -= p.o.Size(*last)
	}
	if by > 0 && !some(n.of, func(ns string) bool { return p.bytes[ns]+by <= p.o.Bytes }) {
		return fmt.Errorf("all that namespace %s needs has more than %d bytes", n.of[0], p.o.Bytes)
	}
	for _, ns := range n.of {
		p.bytes[ns] += by
	}
	return nil
}

// credit counts the answer of a name no more. The caller holds mu.
func (p *Poller[T]) credit(n *name[T]) {
	if p.o.Size == nil {
		return
	}
	for _, ns := range n.of {
		p.bytes[ns] -= p.o.Size(*n.answer)
	}
}

// drop has the answer withdrawn.
func (n *name[T]) drop() {
	n.again = n.answer != nil || n.again
	n.answer = nil
}

// try notes that the name was asked for once, or will not be.
func (n *name[T]) try() {
	select {
	case <-n.tried:
	default:
		close(n.tried)
	}
}

// look has Run see what is due.
func (p *Poller[T]) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Wait returns what is known of the names that are wanted, once each was asked for, or after so long, or when Run has
// ended.
func (p *Poller[T]) Wait(longest time.Duration) []kinds.Change {
	p.mu.Lock()
	all := make([]*name[T], 0, len(p.names))
	for _, n := range p.names {
		all = append(all, n)
	}
	p.mu.Unlock()
	late := time.NewTimer(longest)
	defer late.Stop()
	for _, n := range all {
		select {
		case <-n.tried:
			continue
		case <-late.C:
		case <-p.ended:
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []kinds.Change
	for s, n := range p.names {
		if n.answer != nil {
			out = append(out, facts.Change(p.o.Kind, s, n.answer))
		}
	}
	return out
}

// Get returns the last good answer to a name that is wanted; the zero T if there is none.
func (p *Poller[T]) Get(name string) (answer T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.names[name]; n != nil && n.answer != nil {
		answer = *n.answer
	}
	return answer
}

// Failing returns the names whose last question failed.
func (p *Poller[T]) Failing() map[string]facts.Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]facts.Failure{}
	for s, n := range p.names {
		if n.failures > 0 {
			out[s] = n.failure
		}
	}
	return out
}

// Run asks until ctx ends.
func (p *Poller[T]) Run(ctx context.Context) error {
	defer close(p.ended)
	var asking sync.WaitGroup
	defer asking.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, wait := p.next(time.Now())
		if n != nil {
			asking.Add(1)
			safe.Go(p.o.Logger, "question for a fact", func() {
				defer asking.Done()
				defer p.end(n)
				p.ask(ctx, n)
			})
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// rank orders names: those that are well, new ones, those that failed.
func (n *name[T]) rank() int {
	switch {
	case n.failures > 0:
		return 2
	case n.answer == nil:
		return 1
	}
	return 0
}

// turnOf returns the namespace whose turn the question of a name would be, which of those that need it has the fewest
// open, and how many those are.
func (p *Poller[T]) turnOf(n *name[T]) (namespace string, open int) {
	for i, ns := range n.of {
		if i == 0 || p.open[ns] < open {
			namespace, open = ns, p.open[ns]
		}
	}
	return namespace, p.open[namespace]
}

// next takes a name that is due, or returns the time until one is. Namespaces with few open questions come first. At
// the bound, the end of a question wakes Run.
func (p *Poller[T]) next(now time.Time) (first *name[T], wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = p.o.Every
	if p.all == p.o.Limits.Questions {
		return nil, wait
	}
	fewest := 0
	for _, n := range p.names {
		turn, open := p.turnOf(n)
		switch left := n.due.Sub(now); {
		case n.asking:
		case n.again:
			p.begin(n, turn)
			return n, 0
		case n.beyond:
		case left > 0:
			wait = min(wait, left)
		case open >= p.o.Limits.Questions-p.all:
		case first == nil || cmp.Or(cmp.Compare(open, fewest), cmp.Compare(n.rank(), first.rank()), n.due.Compare(first.due)) < 0:
			first, fewest = n, open
		}
	}
	if first != nil {
		turn, _ := p.turnOf(first)
		p.begin(first, turn)
		first.due = now.Add(p.o.Every)
	}
	return first, wait
}

func (p *Poller[T]) begin(n *name[T], turn string) {
	n.asking, n.turn = true, turn
	p.all++
	p.open[turn]++
}

// end is called after each question.
func (p *Poller[T]) end(n *name[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n.asking = false
	p.all--
	if p.open[n.turn]--; p.open[n.turn] == 0 {
		delete(p.open, n.turn)
	}
	p.look()
}

func (p *Poller[T]) ask(ctx context.Context, n *name[T]) {
	if known, again := p.takeAgain(n); again {
		p.o.Handler([]kinds.Change{facts.Change(p.o.Kind, n.name, known)})
		return
	}
	answer, err := p.question(ctx, n)
	if ctx.Err() != nil {
		return
	}
	if now, changed := p.answer(n, answer, err); changed {
		p.o.Handler([]kinds.Change{facts.Change(p.o.Kind, n.name, now)})
	}
}

func (p *Poller[T]) question(ctx context.Context, n *name[T]) (T, error) {
	select {
	case <-n.tried:
		return p.o.Ask(ctx, n.name)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Limits.FirstQuestion)
	defer cancel()
	return p.o.Ask(ctx, n.name)
}

// takeAgain returns the answer that is to be handed on again, nil if it was withdrawn, and reports whether there is
// anything to hand on.
func (p *Poller[T]) takeAgain(n *name[T]) (answer *T, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again, n.again = n.again, false
	return n.answer, again
}

// answer takes in what a question found. It returns the answer that counts now, and whether that is new.
func (p *Poller[T]) answer(n *name[T], answer T, err error) (now *T, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.names[n.name] == n
	if !wanted && p.idle[n.name] != n || n.beyond {
		return nil, false
	}
	defer func() { changed = changed && wanted }()
	defer n.try()
	if err == nil && wanted {
		err = p.charge(n, n.answer, answer)
	}
	if err != nil {
		if n.failures == 0 {
			n.failure.Since = time.Now()
			message := "a fact cannot be had, and is missing"
			if n.answer != nil {
				message = "a fact cannot be had: its last answer stays in force"
			}
			p.o.Logger.Warn(message, "kind", p.o.Kind.Name, "name", n.name, "err", err)
		}
		n.failure.Why = err.Error()
		n.due = time.Now().Add(min(p.o.Retry<<min(n.failures, 16), p.o.Longest))
		n.failures++
		if n.answer == nil || p.o.Age == 0 || time.Since(n.good) < p.o.Age {
			return n.answer, false
		}
		p.o.Logger.Warn("a fact is too old, and missing from now on", "kind", p.o.Kind.Name, "name", n.name, "good", n.good)
		if wanted {
			p.credit(n)
		}
		n.answer = nil
		return nil, true
	}
	n.due, n.good, n.failures = time.Now().Add(p.o.Every), time.Now(), 0
	if n.answer != nil && reflect.DeepEqual(*n.answer, answer) {
		return n.answer, false
	}
	n.answer = &answer
	return n.answer, true
}
