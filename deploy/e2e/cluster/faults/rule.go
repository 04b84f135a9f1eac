package faults

import (
	"slices"
	"time"
)

// Match selects requests. An empty field matches all.
type Match struct {
	Verbs    []string
	Group    string
	Resource string
	// Namespace is the namespace in the path. Requests for all namespaces have none.
	Namespace string
	UserAgent string
	Identity  string
	// Writes matches only requests that change something.
	Writes bool
}

// Rule is a fault for requests. If several rules match, all of them delay the request, and the first one with a status
// answers it.
type Rule struct {
	Match
	// Share is the share of the matching requests that are affected, spread evenly: 0.25 is every fourth. 0 means all.
	Share float64
	// Delay is how long a request waits before it is answered or forwarded.
	Delay time.Duration
	// Status is the answer instead of kube-apiserver's, such as 429 or 500.
	Status int
	// RetryAfter is how long the answer asks the client to wait, in whole seconds. 0 means no such header.
	RetryAfter time.Duration
}

// Matches reports whether a request matches.
func (m Match) Matches(r Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return (len(m.Verbs) == 0 || slices.Contains(m.Verbs, r.Verb)) && is(m.Group, r.Group) && is(m.Resource, r.Resource) &&
		is(m.Namespace, r.Namespace) && is(m.UserAgent, r.UserAgent) && is(m.Identity, r.Identity) && (!m.Writes || r.Writes())
}

// active is a rule with the count of its share.
type active struct {
	Rule
	due float64
}

// hits counts the request and reports whether it is in the share.
func (a *active) hits(r Request) bool {
	if !a.Matches(r) {
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
