package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

//go:embed static
var files embed.FS

// Proxies are the connected proxies: an *xds.Server.
type Proxies interface {
	Clients() []xds.Client
	Dump(id, typeURL string) ([]*envoy.Resource, bool)
}

// Progress knows which objects are in force: a *progress.Tracker.
type Progress interface {
	// Briefs returns what this replica knows of the newest versions of objects.
	Briefs(keys []kinds.Key) []progress.Brief
	// Find returns the object that KIND/NAME.NAMESPACE names.
	Find(text, cluster string) (kinds.Key, error)
	// Ask and AskHistory ask all replicas.
	Ask(ctx context.Context, q progress.Question) progress.Answer
	AskHistory(ctx context.Context, k kinds.Key) progress.History
}

// World is the configuration that the page shows, and the sources of resources. Its methods must be safe for concurrent
// use.
type World interface {
	debug.World
	// Sources returns the objects that a resource is made of.
	Sources(*envoy.Resource) []pushes.Object
}

// Options configure the page.
type Options struct {
	World    World
	Proxies  Proxies
	Pushes   *pushes.Log
	Progress Progress
	Replicas debug.Replicas // nil if the server has no other replicas
	Name     string         // name of this replica
	Logger   *slog.Logger
	Version  string
	Domain   string // domain of the cluster, such as cluster.local
	Now      func() time.Time
}

// UI is the live page.
type UI struct {
	o       Options
	slots   chan struct{}
	closing context.Context
	close   context.CancelFunc

	others   section[[]debug.Replica]
	proxies  section[[]proxyRow]
	objects  section[[]objectRow]
	mesh     section[mesh]
	findings section[[]diag.Diagnostic]
	pushes   section[pushes.Page]
	summary  section[summary]
	watched  *lru.Cache[kinds.Key, *section[objectAnswer]] // objects that viewers look at

	mu      sync.Mutex
	encoded *simplelru.LRU[string, encoded]
	idle    *time.Timer // drops all sections after idleTime
}

// encoded is an encoded answer, shared by equal requests.
type encoded struct {
	serial uint64
	etag   string
	body   []byte
}

// Bounds without options.
const (
	maxRequests = 16 // concurrent requests
	maxEncoded  = 64 // cached answers
	idleTime    = 2 * time.Minute
)

// New returns the page.
func New(o Options) *UI {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	u := &UI{o: o, slots: make(chan struct{}, maxRequests)}
	u.closing, u.close = context.WithCancel(context.Background())
	u.encoded, _ = simplelru.NewLRU[string, encoded](maxEncoded, nil) // fails only for sizes below 1
	u.watched, _ = lru.New[kinds.Key, *section[objectAnswer]](maxObjects)
	u.proxies.build, u.objects.build, u.mesh.build = u.makeProxies, u.makeObjects, u.makeMesh
	u.findings.build, u.summary.build = u.makeFindings, u.makeSummary
	u.others.background = u
	u.others.build, u.proxies.before = u.makeOthers, func() { u.others.get(o.Now) }
	rows, found := func() { u.proxies.get(o.Now) }, func() { u.findings.get(o.Now) }
	u.mesh.before, u.objects.before, u.summary.before = rows, found, func() { rows(); found() }
	u.pushes.build = func() pushes.Page { return o.Pushes.Since(0, 0) }
	return u
}

// Handler serves the page below /ui.
func (u *UI) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusFound) })
	mux.HandleFunc("GET /ui/{$}", func(w http.ResponseWriter, r *http.Request) { u.file(w, r, "index.html") })
	mux.HandleFunc("GET /ui/{name}", func(w http.ResponseWriter, r *http.Request) { u.file(w, r, r.PathValue("name")) })
	mux.HandleFunc("GET /ui/api/{name}", u.api)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		mux.ServeHTTP(w, r)
	})
}

// policy allows only the page's own files and API: no inline script or style, no frame, no form.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file serves one of the page's own files.
func (u *UI) file(w http.ResponseWriter, r *http.Request, name string) {
	body, err := fs.ReadFile(files, path.Join("static", path.Clean("/"+name)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentType(name))
	u.write(w, r, etagOf(body), body)
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func etagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// write writes a body, or 304 if the client has it already.
func (u *UI) write(w http.ResponseWriter, r *http.Request, etag string, body []byte) {
	w.Header().Set("ETag", etag)
	if match := r.Header.Get("If-None-Match"); match != "" && strings.Contains(match, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// Errors of the API.
var (
	errUnknown = errors.New("there is nothing of that name")
	errQuery   = errors.New("the query is wrong")
)

// api answers a request for JSON.
func (u *UI) api(w http.ResponseWriter, r *http.Request) {
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at a time", http.StatusTooManyRequests)
		return
	}
	u.used()
	e, err := u.answer(r.PathValue("name"), r.URL.Query())
	switch {
	case errors.Is(err, errUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case errors.Is(err, errQuery):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	u.write(w, r, e.etag, e.body)
}

// answer returns the answer to a request.
func (u *UI) answer(name string, query url.Values) (encoded, error) {
	page, err := pageOf(query)
	if err != nil {
		return encoded{}, err
	}
	switch name {
	case "summary":
		return encodeSection(u, name, &u.summary, asIs)
	case "proxies":
		return encodeSection(u, name+"?"+page.key(), &u.proxies, func(v []proxyRow) any { return rowsOf(v, page) })
	case "objects":
		return encodeSection(u, name+"?"+page.key(), &u.objects, func(v []objectRow) any { return rowsOf(v, page) })
	case "object":
		return u.object(query)
	case "findings":
		return encodeSection(u, name, &u.findings, asIs)
	case "mesh":
		return encodeSection(u, name, &u.mesh, asIs)
	case "pushes":
		return encodeSection(u, name, &u.pushes, asIs)
	case "config":
		v, err := u.config(query, page)
		if err != nil {
			return encoded{}, err
		}
		return encodeJSON(v)
	case "resource":
		v, err := u.resource(query)
		if err != nil {
			return encoded{}, err
		}
		return encodeJSON(v)
	}
	return encoded{}, errUnknown
}

func asIs[T any](v T) any { return v }

// encodeSection returns the answer to a request for a section. show selects what is encoded. Each build is encoded once
// for equal requests, and the cost of encoding belongs to the section.
func encodeSection[T any](u *UI, key string, of *section[T], show func(T) any) (encoded, error) {
	value, serial := of.get(u.o.Now)
	u.mu.Lock()
	defer u.mu.Unlock()
	if e, ok := u.encoded.Get(key); ok && e.serial == serial {
		return e, nil
	}
	began := u.o.Now()
	e, err := encodeJSON(show(value))
	of.charge(u.o.Now().Sub(began))
	if err == nil {
		e.serial = serial
		u.encoded.Add(key, e)
	}
	return e, err
}

func encodeJSON(v any) (encoded, error) {
	body, err := json.Marshal(v)
	return encoded{etag: etagOf(body), body: body}, err
}

// start runs a function in a goroutine of its own.
func (u *UI) start(fn func()) { safe.Go(u.o.Logger, "ui", fn) }

// used records that there is a viewer.
func (u *UI) used() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle == nil {
		u.idle = time.AfterFunc(idleTime, func() { safe.Run(u.o.Logger, "ui", u.forget) })
		return
	}
	u.idle.Reset(idleTime)
}

// forget drops all sections.
func (u *UI) forget() {
	u.others.drop()
	u.proxies.drop()
	u.objects.drop()
	u.mesh.drop()
	u.findings.drop()
	u.pushes.drop()
	u.summary.drop()
	u.watched.Purge()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.encoded.Purge()
}

// Close ends waiting requests and the timer.
func (u *UI) Close() {
	u.close()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle != nil {
		u.idle.Stop()
	}
}
