package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// hostile is a text that changes colours, forges a line and a column of a table, and reverses the direction of text.
const hostile = "x\x1b[31mred\nFORGED   in force\tof\u202e\u009b2J a table"

// harmless checks that an output has no characters which a terminal would interpret.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%s prints %q", what, r)
			return
		}
	}
	if strings.HasPrefix(text, "FORGED") || strings.Contains(text, "\nFORGED") {
		t.Errorf("%s prints a forged line:\n%s", what, text)
	}
}

// filled returns a value with the hostile text in each string that its JSON has.
func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), 0)
	return v
}

func fill(v reflect.Value, depth int) {
	const deepest = 10 // an arrival has arrivals
	if !v.CanSet() || depth > deepest || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// hostileServer starts a server whose pages have the hostile text in each string, and returns its address.
func hostileServer(t *testing.T, state progress.State) string {
	t.Helper()
	encoded := func(v any) []byte {
		text, err := json.Marshal(v)
		must.Succeed(t, err)
		return text
	}
	answer := filled[progress.Answer]()
	answer.State = state
	pages := map[string][]byte{
		"syncz": encoded(filled[[]debug.ProxyStatus]()), "pushes": encoded(filled[pushes.Page]()), "inforce": encoded(answer),
		"history": encoded(filled[progress.History]()), "why": encoded(filled[inspect.Way]()), "findings": encoded(hostile),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := strings.TrimPrefix(r.URL.Path, "/debug/")
		switch {
		case page == "replicas":
			replicas := []debug.Replica{
				{Name: hostile, Self: true, Version: hostile, Answer: pages[r.URL.Query().Get("page")]}, {Name: hostile, Error: hostile},
			}
			_, _ = w.Write(encoded(replicas))
		case pages[page] != nil:
			_, _ = w.Write(pages[page])
		case page == "/metrics":
		case page == "/version":
			_, _ = io.WriteString(w, hostile)
		default:
			http.Error(w, hostile, http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// hasText reports whether a text is in a decoded JSON value.
func hasText(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, text)
	case []any:
		return slices.ContainsFunc(v, func(x any) bool { return hasText(x, text) })
	case map[string]any:
		for _, x := range v {
			if hasText(x, text) {
				return true
			}
		}
	}
	return false
}

// Each command that asks a server prints the texts of proxies and servers without characters which a terminal would
// interpret. Programs that read JSON get the texts unchanged.
func TestHostileAnswers(t *testing.T) {
	for _, args := range [][]string{
		{"wait", "VirtualService/web.a"},
		{"proxy-status"},
		{"pushes"},
		{"pushes", "--object", "VirtualService/web.a"},
		{"why", "web-1.a", "web:80"},
		{"why", "--log", "UF", "web-1.a", "web:80"},
		{"check"},
		{"check", "--proxy", "web-1.a"},
	} {
		for _, state := range []progress.State{progress.Invalid, progress.WithoutEffect} {
			if state != progress.Invalid && args[0] != "wait" {
				continue
			}
			address := hostileServer(t, state)
			for _, output := range []string{"table", "wide", "name", "json"} {
				if args[0] == "wait" && output == "wide" {
					continue
				}
				what := strings.Join(args, " ") + " -o " + output
				var out, said bytes.Buffer
				run(t.Context(), append(slices.Clone(args), "-o", output, "--address", address), nil, &out, &said)
				harmless(t, what+" on standard error", said.String())
				if output != "json" {
					harmless(t, what, out.String())
					if output == "table" && !strings.Contains(out.String(), "red FORGED") && !slices.Contains(args, "--proxy") {
						t.Errorf("%s lacks the words of the server:\n%s%s", what, &out, &said)
					}
					continue
				}
				var v any
				err := json.NewDecoder(&out).Decode(&v)
				if (err != nil || !hasText(v, hostile)) && !slices.Contains(args, "--proxy") {
					t.Errorf("%s has not the words of the server as they are: %v: %s", what, err, &said)
				}
			}
		}
	}
	var out, said bytes.Buffer
	address := hostileServer(t, progress.InForce)
	code := run(t.Context(), []string{"proxy-status", terminal.Plain(hostile), "--address", address}, nil, &out, &said)
	if harmless(t, "proxy-status of one", out.String()); code != 0 {
		t.Errorf("proxy-status of one: %d, %s", code, &said)
	}
}

// Commands print bodies of errors, arguments and answers that cannot be decoded without such characters too.
func TestHostileErrors(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, hostile, http.StatusForbidden)
	}))
	defer refuses.Close()
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer odd.Close()
	const object = "VirtualService/web.a"
	for _, server := range []*httptest.Server{refuses, odd} {
		address := strings.TrimPrefix(server.URL, "http://")
		for _, args := range [][]string{
			{"wait", object},
			{"wait", object, "-o", "json"},
			{"wait", "VirtualService/" + hostile + ".a"},
			{"proxy-status"},
			{"proxy-status", hostile},
			{"proxy-status", "-o", "json"},
			{"pushes"},
			{"pushes", "--object", object},
			{"pushes", "--object", hostile},
			{"why", "web-1.a", "web:80"},
			{"why", hostile + ".a", "web:80"},
			{"why", "web-1.a", hostile},
			{"why", "--log", hostile, "web-1.a", "web:80"},
			{"check"},
			{"request", "GET", "/debug/list"},
			{"request", "GET", "/debug/" + hostile},
		} {
			var out, said bytes.Buffer
			what := strings.Join(args, " ")
			code := run(t.Context(), append(slices.Clone(args), "--address", address), nil, &out, &said)
			harmless(t, what, out.String()+said.String())
			valid := server == odd && (args[0] == "request" || args[0] == "check" || slices.Equal(args, []string{"pushes", "--object", object}))
			if code != 1 && !valid {
				t.Errorf("%q ends with %d: %s%s", what, code, &out, &said)
			}
		}
	}
}

// An endless body is refused, and not kept in memory.
func TestEndlessAnswers(t *testing.T) {
	chunk := bytes.Repeat([]byte("a"), 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `"`)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, args := range [][]string{{"wait", "VirtualService/web.a"}, {"proxy-status"}} {
		var said strings.Builder
		code := run(t.Context(), append(args, "--address", address), nil, io.Discard, &said)
		if code != 1 || said.String() != "error: the answer of "+address+" has more than 64 MiB\n" {
			t.Errorf("%q ends with %d: %s", args, code, said.String())
		}
	}
}
