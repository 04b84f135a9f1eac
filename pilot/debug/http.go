package debug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
)

// Handler serves the API below /debug over HTTP. It answers peers on loopback, and peers with a bearer token whose
// identity may read the page, as over xDS. Other peers get 401 or 403.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug", a.index)
	mux.HandleFunc("/debug/{$}", a.index)
	mux.HandleFunc("/debug/{name}", a.serve)
	if a.o.Profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, peer, err := a.admit(r)
		if refused(w, err) {
			return
		}
		r.URL.RawQuery = query.Encode()
		holder, _ := peer.Holder()
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), holderKey{}, holder)))
	})
}

// holderKey is the context key of a request's sender, an identity.Holder.
type holderKey struct{}

// holderOf returns the sender of an admitted request. It is zero for a peer on this host, which has no bound.
func holderOf(r *http.Request) identity.Holder {
	h, _ := r.Context().Value(holderKey{}).(identity.Holder)
	return h
}

// Guard wraps a handler so that it serves only peers that may read every debug page.
func (a *API) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := a.sender(r)
		if err == nil {
			err = a.o.Authorizer.Debug(peer, authorize.Page{})
		}
		if !refused(w, err) {
			next.ServeHTTP(w, r)
		}
	})
}

// errUnauthenticated is the error for a request from an unknown sender.
var errUnauthenticated = errors.New("authentication required")

// errOrigin is the error for a request that changes something and that a browser sends for a page of another origin.
var errOrigin = &authorize.Denied{Message: "a web page of another origin may not change anything here"}

// sender identifies the sender of a request by its bearer token, or else by its address. A request without a token may
// come from a browser on this host that runs a hostile web page. So its Host must not be a DNS name (safe.NotRebound),
// and a request from another origin must not change anything.
func (a *API) sender(r *http.Request) (identity.Peer, error) {
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if ok && strings.EqualFold(scheme, "Bearer") && a.o.Authenticate != nil {
		peer, err := a.o.Authenticate(r.Context(), address, token)
		if err != nil || !peer.Proved() {
			return peer, errUnauthenticated // an unknown sender is not told the reason
		}
		return peer, nil
	}
	peer := identity.Peer{Address: address}
	switch {
	case !peer.OnHost() || !safe.NotRebound(r.Host):
		return peer, errUnauthenticated
	case a.changes(r) && safe.CrossOrigin(r):
		return peer, errOrigin
	}
	return peer, nil
}

// changes reports whether a request changes streams, or profiles the process.
func (a *API) changes(r *http.Request) bool {
	name, _ := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/debug/")
	p, _ := a.page(name)
	return r.Method != http.MethodGet || p.acts || p.actsWith != "" && r.URL.Query().Has(p.actsWith) || strings.HasPrefix(name, "pprof/")
}

// admit returns an error unless the sender of a request may read the requested page. It replaces the proxy in the query
// by its stream, so that the page is about the stream whose namespace was checked.
func (a *API) admit(r *http.Request) (query url.Values, peer identity.Peer, err error) {
	query = r.URL.Query()
	if peer, err = a.sender(r); err != nil {
		return query, peer, err
	}
	about := a.describePage(strings.Trim(strings.TrimPrefix(r.URL.Path, "/debug"), "/"))
	about.Namespace = peer.ID.Namespace
	// This check first avoids a list of the streams for peers that may read the page about no proxy.
	if err := a.o.Authorizer.Debug(peer, about); err != nil {
		return query, peer, err
	}
	about.Namespace = ""
	if query.Has("proxyID") {
		if c, err := a.proxy(query); err == nil {
			about.Namespace, query["proxyID"] = c.Proxy.Namespace, []string{c.ID}
		}
	}
	a.aboutObject(peer, &about, query)
	return query, peer, a.o.Authorizer.Debug(peer, about)
}

// refused answers a request that was not admitted, and returns false if err is nil.
func refused(w http.ResponseWriter, err error) bool {
	var denied *authorize.Denied
	switch {
	case err == nil:
		return false
	case errors.As(err, &denied):
		http.Error(w, denied.Message, http.StatusForbidden)
	default:
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
	return true
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	if !a.await(w, r) {
		return
	}
	done := a.slots.Try(holderOf(r))
	if done == nil {
		tooMany(w, "too many debug requests at a time")
		return
	}
	defer done()
	v, err := a.Answer(r.PathValue("name"), r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if text, ok := v.(plain); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(text + "\n"))
		return
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknownPage), errors.Is(err, ErrNotConnected):
		return http.StatusNotFound
	case errors.Is(err, ErrNoProxyID), errors.Is(err, ErrBadQuery):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// index lists the pages.
func (a *API) index(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<title>istiod-lite debug</title>\n<h1>Debug pages</h1>\n<table>\n")
	for _, p := range a.pages {
		link := "/debug/" + p.name
		if p.proxy {
			link += "?proxyID="
		}
		fmt.Fprintf(
			&b, "<tr><td><a href=\"%s\">%s</a><td>%s\n", html.EscapeString(link), html.EscapeString(strings.TrimPrefix(link, "/debug/")),
			html.EscapeString(p.about),
		)
	}
	if a.o.Profile {
		b.WriteString("<tr><td><a href=\"/debug/pprof/\">pprof</a><td>profiles\n")
	}
	b.WriteString("</table>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(b.String()))
}
