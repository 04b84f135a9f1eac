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

// object returns the object that a query is about, and whether this replica alone is asked.
func (a *API) object(query url.Values) (k kinds.Key, self bool, err error) {
	scope := query.Get("scope")
	if scope != "" && scope != "self" {
		return k, false, fmt.Errorf("%w: scope=%.64q is not self", ErrBadQuery, scope)
	}
	if k, err = a.o.Progress.Find(query.Get("object"), query.Get("cluster")); err != nil {
		return k, false, fmt.Errorf("%w: %w", ErrBadQuery, err)
	}
	return k, scope == "self", nil
}

// inForce says whether a version of an object is in force at the proxies of all replicas.
func (a *API) inForce(query url.Values) (any, error) {
	k, self, err := a.object(query)
	if err != nil {
		return nil, err
	}
	q := progress.Question{Key: k, UID: query.Get("uid"), Version: query.Get("version")}
	if q.Deleted, err = truth(query, "deleted"); err != nil {
		return nil, err
	}
	if query.Get("generation") == "current" {
		var unread *progress.Answer
		if q, unread, err = a.current(k); unread != nil {
			return unread, nil
		}
	} else {
		var generation uint64
		generation, err = number(query, "generation")
		q.Generation = int64(generation)
	}
	if err != nil {
		return nil, err
	}
	reader := query.Get(readerParameter)
	if !self {
		return a.o.Progress.Ask(a.closing, q).For(reader), nil
	}
	by := progress.AskerOf(query)
	if reader != "" {
		by.Name = "" // no replica
	}
	return a.o.Progress.OwnOf(q, by).For(reader), nil
}

// current returns a question about the version that the API server has of an object now, or the answer if the object
// cannot be read.
func (a *API) current(k kinds.Key) (q progress.Question, answer *progress.Answer, err error) {
	if a.o.Server == nil {
		return q, nil, fmt.Errorf("%w: generation=current: this server reads no API server", ErrBadQuery)
	}
	ctx, cancel := context.WithTimeout(a.closing, currentTime)
	defer cancel()
	q, err = a.o.Server.Current(ctx, k)
	switch {
	case apierrors.IsNotFound(err):
		unread := progress.Open(k, progress.NotSeen, "the API server does not have the object")
		return q, &unread, nil
	case err != nil && !errors.Is(err, ErrBadQuery):
		unread := progress.Open(k, progress.Unknown, "failed to read the object from the API server: "+err.Error())
		return q, &unread, nil
	}
	return q, nil, err
}

// aboutObject sets the namespace of a page to the namespace of its object, so that the Authorizer can compare it with
// the reader's. A reader without full access is named in the query, so that the page leaves out names of other
// namespaces.
func (a *API) aboutObject(peer identity.Peer, about *authorize.Page, query url.Values) {
	query.Del(readerParameter)
	if !about.OwnObject {
		return
	}
	if list, err := kinds.Parse(query.Get("object")); err == nil && !query.Has("cluster") {
		about.Namespace = list[0].Namespace
		about.Guesses = list[0].Kind == kinds.Secret && query.Has("version")
	}
	if a.o.Authorizer.Debug(peer, authorize.Page{Name: about.Name}) != nil {
		query.Set(readerParameter, peer.ID.Namespace)
	}
}

// history returns the last versions of an object.
func (a *API) history(query url.Values) (any, error) {
	k, self, err := a.object(query)
	switch {
	case err != nil:
		return nil, err
	case self:
		return a.o.Progress.OwnHistory(k), nil
	}
	return a.o.Progress.AskHistory(a.closing, k), nil
}
