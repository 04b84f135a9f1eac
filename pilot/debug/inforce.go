package debug

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// readerParameter is set by the server for pages that a reader without full access reads: to its namespace.
const readerParameter = "reader"

// currentTime is how long the API server may take to say which generation it has.
const currentTime = 2 * time.Second

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
	if query.Get("generation") == "current" {
		q, err = a.current(q.Key)
		return q, self, err
	}
	generation, err := number(query, "generation")
	if err != nil {
		return q, self, err
	}
	q.Generation, q.UID, q.Version = int64(generation), query.Get("uid"), query.Get("version")
	q.Deleted, err = truth(query, "deleted")
	return q, self, err
}

// unreadError is the error for an object whose version is not known, with the answer about it.
type unreadError struct{ answer progress.Answer }

func (e *unreadError) Error() string { return e.answer.Why }

// current returns a question about the version that the API server has of an object now.
func (a *API) current(k kinds.Key) (q progress.Question, err error) {
	if a.o.Server == nil {
		return q, fmt.Errorf("%w: generation=current: this server reads no API server", ErrBadQuery)
	}
	ctx, cancel := context.WithTimeout(a.closing, currentTime)
	defer cancel()
	q, err = a.o.Server.Current(ctx, k)
	switch {
	case apierrors.IsNotFound(err):
		return q, &unreadError{progress.Open(k, progress.NotSeen, "the API server does not have the object")}
	case err != nil && !errors.Is(err, ErrBadQuery):
		return q, &unreadError{progress.Open(k, progress.Unknown, "failed to read the object from the API server: "+err.Error())}
	}
	return q, err
}

// inForce says whether a version of an object is in force at the proxies of all replicas.
func (a *API) inForce(query url.Values) (any, error) {
	reader := query.Get(readerParameter)
	q, self, err := a.subject(query)
	var unread *unreadError
	switch {
	case errors.As(err, &unread):
		return unread.answer, nil
	case err != nil:
		return nil, err
	case self:
		by := progress.AskerOf(query)
		if reader != "" {
			by.Name = "" // no replica
		}
		return a.o.Progress.OwnOf(q, by).For(reader), nil
	}
	return a.o.Progress.Ask(a.closing, q).For(reader), nil
}

// aboutObject tells the Authorizer the namespace of the object that a page is about, and the page the namespace of a
// reader without full access.
func (a *API) aboutObject(peer identity.Peer, about *authorize.Page, query url.Values) {
	query.Del(readerParameter)
	if !about.OwnObject {
		return
	}
	if list, err := progress.Candidates(query.Get("object"), ""); err == nil && !query.Has("cluster") {
		about.Namespace = list[0].Namespace
	}
	if a.o.Authorizer.Debug(peer, authorize.Page{Name: about.Name}) != nil {
		query.Set(readerParameter, peer.ID.Namespace)
	}
}

// settled returns what waits until waiting longer changes nothing about a version.
func (a *API) settled(query url.Values) (func(context.Context), error) {
	q, _, err := a.subject(query)
	var unread *unreadError
	switch {
	case errors.As(err, &unread):
		return func(context.Context) {}, nil
	case err != nil:
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
