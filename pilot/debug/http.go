package debug

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
)

// Handler serves the API below /debug over HTTP. Only peers on loopback are answered; others get 401.
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
		address, _ := netip.ParseAddrPort(r.RemoteAddr)
		if err := a.o.Authorizer.Debug(identity.Peer{Address: address}, authorize.Page{}); err != nil || !namesHost(r) {
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// namesHost reports whether a request names this host by an address or as localhost. A browser that a foreign page
// steers names it otherwise: so no DNS name can be rebound to it.
func namesHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	done, ok := a.begin()
	if !ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many debug requests at a time", http.StatusTooManyRequests)
		return
	}
	defer done()
	v, err := a.Answer(r.PathValue("name"), r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(text, '\n'))
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknownPage), errors.Is(err, ErrNotConnected):
		return http.StatusNotFound
	case errors.Is(err, ErrNoProxyID):
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
		fmt.Fprintf(&b, "<tr><td><a href=\"%s\">%s</a><td>%s\n", html.EscapeString(link), html.EscapeString(strings.TrimPrefix(link, "/debug/")), html.EscapeString(p.about))
	}
	if a.o.Profile {
		b.WriteString("<tr><td><a href=\"/debug/pprof/\">pprof</a><td>profiles\n")
	}
	b.WriteString("</table>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(b.String()))
}
