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

// Options configure a Poller.
type Options[T any] struct {
	Kind *kinds.Kind // kind of the facts
	// Handler gets the answers that have changed. It is called from several goroutines.
	Handler config.Handler
	Logger  *slog.Logger

	// Ask gets the fact with a name. It must return when ctx ends. The error says why there is no answer.
	Ask func(ctx context.Context, name string) (T, error)

	// Interval is the time between two questions about a name.
	Interval time.Duration
	// MinBackoff is the time until the next question after the first failure.
	MinBackoff time.Duration
	// MaxBackoff bounds the backoff, which doubles with each failure.
	MaxBackoff time.Duration
	// MaxAge is how long the last good answer of a failing name stays in force. Zero means forever.
	MaxAge time.Duration

	// Limits bound the number of questions in progress. A namespace may have at most as many as are left for the
	// others, so that names whose servers do not answer do not delay other namespaces. The zero value means
	// limits.Default.
	Limits limits.Limits

	// MaxNames and MaxBytes bound what the objects of one namespace may need: the number of names, in the order of
	// Want, and the total size of their answers. A name is over the limit if it is for every namespace that needs it.
	// It is then not asked for, or its answer is not accepted, and it is reported as failing.
	MaxNames int
	MaxBytes int
	// Size returns the size of an answer in bytes. If it is nil, there are no such limits.
	Size func(T) int
}

// retention is how long a name that is no longer wanted is remembered, so that a name that comes and goes is not
// asked for each time.
const retention = time.Minute

// Poller is a facts.Provider that asks for each name separately.
type Poller[T any] struct {
	o     Options[T]
	wake  chan struct{}
	ended chan struct{} // closed when Run has returned

	mu         sync.Mutex
	inProgress int // number of questions in progress
	// open is the number of questions in progress, by the namespace that each was started for.
	open map[string]int
	// bytes is the size of the answers in force, by the namespaces that need them.
	bytes map[string]int
	names map[string]*name[T]
	idle  map[string]*name[T] // recently wanted names, by name
}

// name is the state of one name.
type name[T any] struct {
	name       string
	namespaces []string // namespaces that need it
	turn       string   // namespace that the question in progress was started for
	answer     *T       // last good answer, or nil; never modified
	lastGood   time.Time
	attempted  chan struct{} // closed when it was asked for once
	inProgress bool
	resend     bool // the answer, or its absence, is to be sent to the Handler again
	overLimit  bool // it is over the limits, and not asked for
	idleSince  time.Time
	due        time.Time
	failures   int           // number of failures since the last good answer
	failure    facts.Failure // reason of the last failure and time of the first
}

// New returns a Poller that asks for nothing yet.
func New[T any](o Options[T]) *Poller[T] {
	if o.Limits == (limits.Limits{}) {
		o.Limits = limits.Default()
	}
	return &Poller[T]{
		o: o, wake: make(chan struct{}, 1), ended: make(chan struct{}), open: map[string]int{}, bytes: map[string]int{},
		names: map[string]*name[T]{}, idle: map[string]*name[T]{},
	}
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
		if idle := p.idle[s]; n == nil && idle != nil && now.Sub(idle.idleSince) < retention {
			n = idle
			n.resend = n.answer != nil
		}
		if n == nil {
			n = &name[T]{name: s, attempted: make(chan struct{}), due: now}
		}
		n.namespaces = need.Namespaces
		next[s] = n
		delete(p.idle, s)
	}
	p.bound(next, needs, now)
	for s, n := range p.names {
		if next[s] == nil {
			n.idleSince = now
			p.idle[s] = n
		}
	}
	maps.DeleteFunc(p.idle, func(_ string, n *name[T]) bool { return now.Sub(n.idleSince) >= retention })
	p.names = next
	p.signal()
}

// bound finds which of the wanted names are over the limits, and withdraws their answers. The caller holds mu.
func (p *Poller[T]) bound(next map[string]*name[T], needs []facts.Need, now time.Time) {
	count := map[string]int{}
	clear(p.bytes)
	for _, need := range needs {
		n := next[need.Name]
		for _, ns := range n.namespaces {
			count[ns]++
		}
		overLimit := p.o.Size != nil && !withinAny(n.namespaces, func(ns string) bool { return count[ns] <= p.o.MaxNames })
		if overLimit && !n.overLimit {
			why := fmt.Sprintf("namespace %s needs more than %d of them", n.namespaces[0], p.o.MaxNames)
			n.failures, n.failure = 1, facts.Failure{Why: why, Since: now}
			n.drop()
			n.setAttempted()
		} else if n.overLimit && !overLimit {
			n.failures, n.due = 0, now
		}
		n.overLimit = overLimit
		if n.answer != nil && p.charge(n, nil, *n.answer) != nil {
			n.drop()
			n.due = now
		}
	}
}

// withinAny reports whether a name is within the limits of one of the namespaces that need it. A name that no
// namespace needs has no limits.
func withinAny(namespaces []string, within func(namespace string) bool) bool {
	return len(namespaces) == 0 || slices.ContainsFunc(namespaces, within)
}

// charge adds the size of an answer to its namespaces and subtracts the size of the last one, which may be nil. It
// returns an error, and changes nothing, if their answers were too large then. The caller holds mu.
func (p *Poller[T]) charge(n *name[T], last *T, answer T) error {
	if p.o.Size == nil {
		return nil
	}
	size := p.o.Size(answer)
	if last != nil {
		size -= p.o.Size(*last)
	}
	if size > 0 && !withinAny(n.namespaces, func(ns string) bool { return p.bytes[ns]+size <= p.o.MaxBytes }) {
		return fmt.Errorf("the answers that namespace %s needs have more than %d bytes", n.namespaces[0], p.o.MaxBytes)
	}
	for _, ns := range n.namespaces {
		p.bytes[ns] += size
	}
	return nil
}

// credit subtracts the size of the answer of a name from its namespaces. The caller holds mu.
func (p *Poller[T]) credit(n *name[T]) {
	if p.o.Size == nil {
		return
	}
	for _, ns := range n.namespaces {
		p.bytes[ns] -= p.o.Size(*n.answer)
	}
}

// drop withdraws the answer.
func (n *name[T]) drop() {
	n.resend = n.answer != nil || n.resend
	n.answer = nil
}

// setAttempted records that the name was asked for once, or will not be.
func (n *name[T]) setAttempted() {
	select {
	case <-n.attempted:
	default:
		close(n.attempted)
	}
}

// signal wakes Run.
func (p *Poller[T]) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Wait returns the answers to the wanted names, as changes. It waits until each name was asked for once, timeout is
// over or Run has returned.
func (p *Poller[T]) Wait(timeout time.Duration) []kinds.Change {
	p.mu.Lock()
	all := make([]*name[T], 0, len(p.names))
	for _, n := range p.names {
		all = append(all, n)
	}
	p.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, n := range all {
		select {
		case <-n.attempted:
			continue
		case <-timer.C:
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

// Get returns the last good answer to a wanted name, or the zero T if there is none.
func (p *Poller[T]) Get(name string) (answer T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.names[name]; n != nil && n.answer != nil {
		answer = *n.answer
	}
	return answer
}

// Failing returns the wanted names whose last question failed.
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

// Run asks for names until ctx ends. It returns nil when all questions have ended.
func (p *Poller[T]) Run(ctx context.Context) error {
	defer close(p.ended)
	var questions sync.WaitGroup
	defer questions.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, wait := p.next(time.Now())
		if n != nil {
			questions.Add(1)
			safe.Go(p.o.Logger, "question for a fact", func() {
				defer questions.Done()
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

// rank orders names: names with a current answer first, then new ones, then failing ones.
func (n *name[T]) rank() int {
	switch {
	case n.failures > 0:
		return 2
	case n.answer == nil:
		return 1
	}
	return 0
}

// turnOf returns the namespace that a question about a name would be started for, and the number of its open questions.
// It is the namespace with the fewest open questions among the namespaces that need the name.
func (p *Poller[T]) turnOf(n *name[T]) (namespace string, open int) {
	for i, ns := range n.namespaces {
		if i == 0 || p.open[ns] < open {
			namespace, open = ns, p.open[ns]
		}
	}
	return namespace, p.open[namespace]
}

// next starts the question about a name that is due, or returns the time until one is. Namespaces with few open
// questions come first. If the number of questions is at its limit, the end of a question wakes Run.
func (p *Poller[T]) next(now time.Time) (first *name[T], wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = p.o.Interval
	if p.inProgress == p.o.Limits.Questions {
		return nil, wait
	}
	fewest := 0
	for _, n := range p.names {
		turn, open := p.turnOf(n)
		switch left := n.due.Sub(now); {
		case n.inProgress:
		case n.resend:
			p.begin(n, turn)
			return n, 0
		case n.overLimit:
		case left > 0:
			wait = min(wait, left)
		case open >= p.o.Limits.Questions-p.inProgress:
		case first == nil || cmp.Or(cmp.Compare(open, fewest), cmp.Compare(n.rank(), first.rank()), n.due.Compare(first.due)) < 0:
			first, fewest = n, open
		}
	}
	if first != nil {
		turn, _ := p.turnOf(first)
		p.begin(first, turn)
		first.due = now.Add(p.o.Interval)
	}
	return first, wait
}

func (p *Poller[T]) begin(n *name[T], turn string) {
	n.inProgress, n.turn = true, turn
	p.inProgress++
	p.open[turn]++
}

// end records the end of a question.
func (p *Poller[T]) end(n *name[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n.inProgress = false
	p.inProgress--
	if p.open[n.turn]--; p.open[n.turn] == 0 {
		delete(p.open, n.turn)
	}
	p.signal()
}

func (p *Poller[T]) ask(ctx context.Context, n *name[T]) {
	if known, resend := p.takeResend(n); resend {
		p.o.Handler([]kinds.Change{facts.Change(p.o.Kind, n.name, known)})
		return
	}
	answer, err := p.question(ctx, n)
	if ctx.Err() != nil {
		return
	}
	if current, changed := p.answer(n, answer, err); changed {
		p.o.Handler([]kinds.Change{facts.Change(p.o.Kind, n.name, current)})
	}
}

func (p *Poller[T]) question(ctx context.Context, n *name[T]) (T, error) {
	select {
	case <-n.attempted:
		return p.o.Ask(ctx, n.name)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Limits.FirstQuestion)
	defer cancel()
	return p.o.Ask(ctx, n.name)
}

// takeResend returns the answer to send to the Handler again, or nil if it was withdrawn. resend is false if there is
// nothing to send.
func (p *Poller[T]) takeResend(n *name[T]) (answer *T, resend bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	resend, n.resend = n.resend, false
	return n.answer, resend
}

// answer records the result of a question. It returns the answer in force, and whether that has changed.
func (p *Poller[T]) answer(n *name[T], answer T, err error) (current *T, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.names[n.name] == n
	if !wanted && p.idle[n.name] != n || n.overLimit {
		return nil, false
	}
	defer func() { changed = changed && wanted }()
	defer n.setAttempted()
	if err == nil && wanted {
		err = p.charge(n, n.answer, answer)
	}
	if err != nil {
		if n.failures == 0 {
			n.failure.Since = time.Now()
			message := "failed to get a fact: it is missing"
			if n.answer != nil {
				message = "failed to get a fact: its last answer stays in force"
			}
			p.o.Logger.Warn(message, "kind", p.o.Kind.Name, "name", n.name, "err", err) //nolint:sloglint // one of two constants
		}
		n.failure.Why = err.Error()
		n.due = time.Now().Add(min(p.o.MinBackoff<<min(n.failures, 16), p.o.MaxBackoff))
		n.failures++
		if n.answer == nil || p.o.MaxAge == 0 || time.Since(n.lastGood) < p.o.MaxAge {
			return n.answer, false
		}
		p.o.Logger.Warn("the last answer of a fact has expired: the fact is missing", "kind", p.o.Kind.Name, "name", n.name, "good", n.lastGood)
		if wanted {
			p.credit(n)
		}
		n.answer = nil
		return nil, true
	}
	n.due, n.lastGood, n.failures = time.Now().Add(p.o.Interval), time.Now(), 0
	if n.answer != nil && reflect.DeepEqual(*n.answer, answer) {
		return n.answer, false
	}
	n.answer = &answer
	return n.answer, true
}
