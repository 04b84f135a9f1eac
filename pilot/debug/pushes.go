package debug

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// watchTime bounds how long a request over HTTP waits for a push. It is less than the time limit for a response.
const watchTime = 25 * time.Second

// maxWatchers bounds the requests that wait for a push. They take no slot while they wait.
const maxWatchers = 64

// pushes returns the last pushes: with since=ID the ones after it, and with limit=N at most N.
func (a *API) pushes(query url.Values) (any, error) {
	if a.o.Pushes == nil {
		return pushes.Page{Pushes: []pushes.Push{}}, nil
	}
	since, err := number(query, "since")
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit")
	if err != nil {
		return nil, err
	}
	return a.o.Pushes.Since(since, int(min(limit, 1<<30))), nil
}

// number returns the numeric value of a parameter, or 0 if it is missing.
func number(query url.Values, name string) (uint64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %s=%s is no number", ErrBadQuery, name, text)
	}
	return n, nil
}

// await waits for a push newer than since if the request has the parameter watch. It returns false if it has answered
// the request.
func (a *API) await(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	if p, _ := a.page(r.PathValue("name")); !p.waits || !query.Has("watch") || a.o.Pushes == nil {
		return true
	}
	since, err := number(query, "since")
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return false
	}
	done := a.watchers.Try(holderOf(r))
	if done == nil {
		tooMany(w, "too many requests wait for pushes")
		return false
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), watchTime)
	defer cancel()
	defer context.AfterFunc(a.closing, cancel)()
	a.o.Pushes.Wait(ctx, since)
	return r.Context().Err() == nil
}

func tooMany(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, text, http.StatusTooManyRequests)
}
