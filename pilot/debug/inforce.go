package debug

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// subject returns the question that a query asks, and whether it is for this replica alone.
func (a *API) subject(query url.Values) (q progress.Question, self bool, err error) {
	if q.Key, err = a.o.Progress.Find(query.Get("object"), query.Get("cluster")); err != nil {
		return q, false, fmt.Errorf("%w: %w", ErrBadQuery, err)
	}
	switch scope := query.Get("scope"); scope {
	case "self":
		self = true
	case "":
	default:
		return q, false, fmt.Errorf("%w: scope=%.64q is not self", ErrBadQuery, scope)
	}
	generation, err := number(query, "generation")
	if err != nil {
		return q, false, err
	}
	q.Generation, q.Version = int64(generation), query.Get("version")
	q.Deleted, err = truth(query, "deleted")
	return q, self, err
}

// inForce says whether a version of an object is in force at the proxies of all replicas.
func (a *API) inForce(query url.Values) (any, error) {
	q, self, err := a.subject(query)
	switch {
	case err != nil:
		return nil, err
	case self:
		var proxies []string
		if list := query.Get("connected"); list != "" {
			proxies = strings.Split(list, ",")
		}
		return a.o.Progress.OwnOf(q, proxies), nil
	}
	return a.o.Progress.Ask(a.closing, q), nil
}

// settled returns what waits until waiting longer changes nothing about a version.
func (a *API) settled(query url.Values) (func(context.Context), error) {
	q, _, err := a.subject(query)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { a.o.Progress.Wait(ctx, q) }, nil
}

// history returns the last versions of an object.
func (a *API) history(query url.Values) (any, error) {
	q, self, err := a.subject(query)
	switch {
	case err != nil:
		return nil, err
	case self:
		return a.o.Progress.OwnHistory(q.Key), nil
	}
	return a.o.Progress.AskHistory(a.closing, q.Key), nil
}
