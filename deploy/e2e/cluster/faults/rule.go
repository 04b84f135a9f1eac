package faults

import (
	"slices"
	"time"
)

// Match chooses requests. What is empty matches all.
type Match struct {
	Verbs    []string
	Group    string
	Resource string
	// Namespace is that in the path; what is asked of all namespaces has none.
	Namespace string
	UserAgent string
	Identity  string
	// Writes matches only what changes something.
	Writes bool
}

// Rule does something to requests. Of the rules that match one, all delay it, and the first that has a status answers
// it.
type Rule struct {
	Match
	// Share is how many of those that match are hit, spread evenly: 0.25 is every fourth. 0 is all.
	Share float64
	// Delay is how long a request is held back before it is answered or passed on.
	Delay time.Duration
	// Status answers in place of kube-apiserver: 429, 500.
	Status int
	// RetryAfter is what an answer bids the client wait, in whole seconds; 0 bids nothing.
	RetryAfter time.Duration
}

// Of reports whether the rule matches the request.
func (m Match) Of(r Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return (len(m.Verbs) == 0 || slices.Contains(m.Verbs, r.Verb)) && is(m.Group, r.Group) && is(m.Resource, r.Resource) &&
		is(m.Namespace, r.Namespace) && is(m.UserAgent, r.UserAgent) && is(m.Identity, r.Identity) && (!m.Writes || r.Writes())
}

// active is a rule with its share counted.
type active struct {
	Rule
	due float64
}

// hits counts the request and reports whether it falls into the share.
func (a *active) hits(r Request) bool {
	if !a.Of(r) {
		return false
	}
	if a.Share == 0 {
		return true
	}
	const rounding = 1e-9
	a.due += a.Share
	if a.due+rounding < 1 {
		return false
	}
	a.due--
	return true
}
