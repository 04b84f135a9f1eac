package ctrlz

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Options are the sources of the pages.
type Options struct {
	Scopes Scopes
	// Args is the command line of the process, with its name.
	Args    []string
	Environ []string // in the form of os.Environ
	Version string
	Metrics prometheus.Gatherer
}

// Scopes lists and sets the log levels.
type Scopes interface {
	List() []Scope
	// Set sets the levels of a scope. The error says what is wrong with them.
	Set(Scope) error
}

// Scope is the log level of one part of the program, in the JSON shape that istioctl reads.
type Scope struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	OutputLevel string `json:"output_level"`
	StackLevel  string `json:"stack_trace_level"`
	LogCallers  bool   `json:"log_callers"`
}

// topic is one page, served as JSON at /<name>j/.
type topic struct {
	name, about string
	get         func(*http.Request) (any, error)
}

// errUnknown means that no scope has the requested name.
var errUnknown = errors.New("404 page not found")

// Handler serves the pages of ControlZ. It does not authorize requests.
func Handler(o Options) http.Handler {
	h := &handler{o}
	mux := http.NewServeMux()
	topics := []topic{
		{"arg", "arguments", func(*http.Request) (any, error) { return o.Args, nil }},
		{"env", "environment", h.env},
		{"mem", "memory", h.memory},
		{"metric", "metrics", h.metrics},
		{"proc", "process", h.process},
		{"scope", "log levels", func(*http.Request) (any, error) { return o.Scopes.List(), nil }},
		{"signal", "signals that the process accepts: none", func(*http.Request) (any, error) { return []string{}, nil }},
		{"version", "version", h.version},
	}
	for _, t := range topics {
		mux.HandleFunc("GET /"+t.name+"j/{$}", answer(t.get))
		mux.HandleFunc("GET /"+t.name+"z/{$}", answer(t.get))
	}
	mux.HandleFunc("GET /scopej/{scope}", answer(h.scope))
	mux.HandleFunc("PUT /scopej/{scope}", h.setScope)
	mux.HandleFunc("PUT /memj/forcecollection", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		b.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<title>ControlZ</title>\n<h1>ControlZ</h1>\n<table>\n")
		for _, t := range topics {
			fmt.Fprintf(&b, "<tr><td><a href=\"/%sj/\">%s</a><td>%s\n", t.name, t.name, html.EscapeString(t.about))
		}
		b.WriteString("</table>\n")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(b.String()))
	})
	return mux
}

type handler struct{ o Options }

// answer returns a handler that writes the result of get as JSON.
func answer(get func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := get(r)
		switch {
		case errors.Is(err, errUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = json.NewEncoder(w).Encode(v)
	}
}

func (h *handler) scope(r *http.Request) (any, error) {
	for _, s := range h.o.Scopes.List() {
		if s.Name == r.PathValue("scope") {
			return s, nil
		}
	}
	return nil, errUnknown
}

// setScope changes the levels of a scope. Fields that the body omits keep their values.
func (h *handler) setScope(w http.ResponseWriter, r *http.Request) {
	found, err := h.scope(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s := found.(Scope)
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		http.Error(w, "the body is not a scope in JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.Name = r.PathValue("scope")
	if err := h.o.Scopes.Set(s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// variable is one environment variable.
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// env lists the environment. It redacts values of variables whose names suggest a secret.
func (h *handler) env(*http.Request) (any, error) {
	secret := regexp.MustCompile(`(?i)passw|secret|token|credential|private|api_?key|_key$|^key$|auth|cookie|headers$`)
	list := make([]variable, 0, len(h.o.Environ))
	for _, s := range slices.Sorted(slices.Values(h.o.Environ)) {
		name, value, _ := strings.Cut(s, "=")
		if secret.MatchString(name) && value != "" {
			value = "[redacted]"
		}
		list = append(list, variable{name, value})
	}
	return list, nil
}

func (h *handler) memory(*http.Request) (any, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m, nil
}

// process describes the process to the operating system.
type process struct {
	Egid       int    `json:"egid"`
	Euid       int    `json:"euid"`
	GID        int    `json:"gid"`
	Groups     []int  `json:"groups"`
	PID        int    `json:"pid"`
	PPID       int    `json:"ppid"`
	UID        int    `json:"uid"`
	Wd         string `json:"wd"`
	Hostname   string `json:"hostname"`
	TempDir    string `json:"tempdir"`
	Threads    int    `json:"threads"`
	Goroutines int    `json:"goroutines"`
}

func (h *handler) process(*http.Request) (any, error) {
	p := process{
		Egid: os.Getegid(), Euid: os.Geteuid(), GID: os.Getgid(), PID: os.Getpid(), PPID: os.Getppid(), UID: os.Getuid(), TempDir: os.TempDir(),
		Goroutines: runtime.NumGoroutine(),
	}
	p.Threads, _ = runtime.ThreadCreateProfile(nil)
	var err [3]error
	p.Groups, err[0] = os.Getgroups()
	p.Wd, err[1] = os.Getwd()
	p.Hostname, err[2] = os.Hostname()
	return p, errors.Join(err[:]...)
}

// build is the version, in the JSON shape of Istio's tools.
type build struct {
	Version   string `json:"version"`
	GoVersion string `json:"golang_version"`
}

func (h *handler) version(*http.Request) (any, error) {
	return build{h.o.Version, runtime.Version()}, nil
}

// metrics returns all metrics in the Prometheus text format, by name.
func (h *handler) metrics(*http.Request) (any, error) {
	families, err := h.o.Metrics.Gather()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range families {
		var b strings.Builder
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
		out[f.GetName()] = b.String()
	}
	return out, nil
}
