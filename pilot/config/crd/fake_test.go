package crd

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// apiServer is as much of an API server as a reflector needs, with faults to order. It answers in protobuf as a real
// one does, if it can.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed at the next event or fault
	version  int
	objects  map[string]map[string]map[string]any // by resource and path
	events   []apiEvent
	oldest   int // the version from which events are still known
	requests map[string]int

	// Faults. They are asked with mu held.
	refuse     func(resource string, r *http.Request) (status int, text string) // 0: no
	unanswered string                                                           // the resource whose requests are taken and not answered
	cut        int                                                              // raised to cut all streams
	asJSON     bool
	oldAPI     bool // no streamed lists
}

type apiEvent struct {
	version  int
	kind     string
	resource string
	object   map[string]any
}

func newAPIServer(t *testing.T, present ...*kinds.Kind) *apiServer {
	t.Helper()
	a := &apiServer{changed: make(chan struct{}), version: 10, objects: map[string]map[string]map[string]any{}, requests: map[string]int{}}
	for _, k := range present {
		a.define(k)
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *apiServer) config() *rest.Config { return &rest.Config{Host: a.URL, QPS: 1000, Burst: 1000} }

func pathOf(k *kinds.Kind) string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

const definitionsResource = "customresourcedefinitions.apiextensions.k8s.io"

func (a *apiServer) define(k *kinds.Kind)   { a.put(definitionsResource, "", pathOf(k), nil) }
func (a *apiServer) undefine(k *kinds.Kind) { a.drop(definitionsResource, "", pathOf(k)) }

// with changes faults and wakes all streams.
func (a *apiServer) with(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
	close(a.changed)
	a.changed = make(chan struct{})
}

// cutStreams ends every stream; with forget, what happened so far can no longer be asked for.
func (a *apiServer) cutStreams(forget bool) {
	a.with(func() {
		a.cut++
		if forget {
			a.version++
			a.oldest = a.version
		}
	})
}

// put creates or updates an object. The fields beside metadata are those of content, as JSON.
func (a *apiServer) put(resource, namespace, name string, content map[string]any) {
	a.with(func() {
		a.version++
		o := map[string]any{}
		meta := map[string]any{}
		for k, v := range content {
			if k == "metadata" {
				for mk, mv := range v.(map[string]any) {
					meta[mk] = mv
				}
				continue
			}
			o[k] = v
		}
		meta["name"], meta["resourceVersion"], meta["managedFields"] = name, strconv.Itoa(a.version), []any{map[string]any{"manager": "test"}}
		if namespace != "" {
			meta["namespace"] = namespace
		}
		if meta["uid"] == nil {
			meta["uid"] = "uid-" + name
		}
		if meta["generation"] == nil {
			meta["generation"] = a.version
		}
		o["metadata"] = meta
		if a.objects[resource] == nil {
			a.objects[resource] = map[string]map[string]any{}
		}
		kind := "MODIFIED"
		if a.objects[resource][namespace+"/"+name] == nil {
			kind = "ADDED"
		}
		a.objects[resource][namespace+"/"+name] = o
		a.events = append(a.events, apiEvent{a.version, kind, resource, o})
	})
}

func (a *apiServer) drop(resource, namespace, name string) {
	a.with(func() {
		a.version++
		o := a.objects[resource][namespace+"/"+name]
		delete(a.objects[resource], namespace+"/"+name)
		a.events = append(a.events, apiEvent{a.version, "DELETED", resource, o})
	})
}

func (a *apiServer) count(resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[resource]
}

// discover answers what kinds there are of a group, or of a version of it.
func (a *apiServer) discover(w http.ResponseWriter, group, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	versions, resources := []object{}, []object{}
	for _, k := range kinds.All() {
		if _, defined := a.objects[definitionsResource]["/"+pathOf(k)]; !defined || k.Group != group {
			continue
		}
		for _, v := range k.Versions {
			versions = append(versions, object{"version": v})
			if v == version {
				resources = append(resources, object{"name": k.Plural})
			}
		}
	}
	if len(versions) == 0 || version != "" && len(resources) == 0 {
		writeStatus(w, http.StatusNotFound, "not found")
		return
	}
	_ = json.NewEncoder(w).Encode(object{"versions": versions, "resources": resources})
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); parts[0] == "apis" && len(parts) < 4 {
		a.discover(w, parts[1], strings.Join(parts[2:], ""))
		return
	}
	res, namespace := parsePath(r.URL.Path)
	a.mu.Lock()
	a.requests[res]++
	a.requests[""]++
	status, text := 0, ""
	if a.refuse != nil {
		status, text = a.refuse(res, r)
	}
	if k := kindOfResource(res); status == 0 && k != nil && coreOf(k) == nil {
		if _, defined := a.objects[definitionsResource]["/"+res]; !defined {
			status, text = http.StatusNotFound, "not found"
		}
	}
	unanswered := a.unanswered == res
	a.mu.Unlock()
	if unanswered {
		<-r.Context().Done()
		return
	}
	if status != 0 {
		writeStatus(w, status, text)
		return
	}
	match := func(o map[string]any) bool {
		meta := o["metadata"].(map[string]any)
		if ns, _ := meta["namespace"].(string); namespace != "" && ns != namespace {
			return false
		}
		for sel := range strings.SplitSeq(r.URL.Query().Get("fieldSelector"), ",") {
			if name, ok := strings.CutPrefix(sel, "metadata.name="); ok && meta["name"] != name {
				return false
			}
		}
		labels, _ := meta["labels"].(map[string]any)
		for sel := range strings.SplitSeq(r.URL.Query().Get("labelSelector"), ",") {
			key, value, valued := strings.Cut(sel, "=")
			if have, ok := labels[key]; sel != "" && (!ok || valued && have != value) {
				return false
			}
		}
		return true
	}
	switch name := nameIn(r.URL.Path); {
	case name != "":
		a.get(w, r, res, namespace+"/"+name)
		return
	case r.URL.Query().Get("watch") == "":
		a.list(w, r, res, match)
		return
	}
	a.watch(w, r, res, match)
}

// nameIn returns the name of the object that a path is about, or an empty string.
func nameIn(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 2 && parts[len(parts)-3] == "namespaces" { // .../namespaces/NAMESPACE/RESOURCE
		return ""
	}
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) == i+4 {
		return parts[i+3]
	}
	return ""
}

// get answers with one object, or with its metadata alone.
func (a *apiServer) get(w http.ResponseWriter, r *http.Request, res, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[res][key]
	switch {
	case o == nil:
		writeStatus(w, http.StatusNotFound, "not found")
	case strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]})
	case a.protobuf(r, res):
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(envelope("Test", encode(res, o)))
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o)
	}
}

func parsePath(path string) (resource, namespace string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	if parts[0] == "api" {
		parts = parts[2:]
	} else {
		group, parts = "."+parts[1], parts[3:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	return parts[0] + group, namespace
}

func kindOfResource(res string) *kinds.Kind {
	for _, k := range kinds.All() {
		if pathOf(k) == res {
			return k
		}
	}
	return nil
}

func writeStatus(w http.ResponseWriter, code int, text string) {
	reason := map[int]metav1.StatusReason{
		403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 410: metav1.StatusReasonExpired,
		429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError,
	}[code]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusOf(code, reason, text))
}

func statusOf(code int, reason metav1.StatusReason, text string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: text,
	}
}

// protobuf reports whether the answer goes out in protobuf, for which the object's type has to be known.
func (a *apiServer) protobuf(r *http.Request, res string) bool {
	k := kindOfResource(res)
	return !a.asJSON && k != nil && coreOf(k) != nil && strings.Contains(r.Header.Get("Accept"), "protobuf")
}

func envelope(kind string, object []byte) []byte {
	meta := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), kind)
	out := protowire.AppendBytes(protowire.AppendTag([]byte(envelopePrefix), 1, protowire.BytesType), meta)
	return protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType), object)
}

func encode(res string, o map[string]any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	out, err := coreOf(kindOfResource(res)).protobuf(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return out
}

func (a *apiServer) sorted(res string, match func(map[string]any) bool) []map[string]any {
	var out []map[string]any
	for _, o := range a.objects[res] {
		if match(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y map[string]any) int {
		return strings.Compare(fmt.Sprint(x["metadata"]), fmt.Sprint(y["metadata"]))
	})
	return out
}

func (a *apiServer) list(w http.ResponseWriter, r *http.Request, res string, match func(map[string]any) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	version := strconv.Itoa(a.version)
	if a.protobuf(r, res) {
		meta, err := (&metav1.ListMeta{ResourceVersion: version}).Marshal()
		if err != nil {
			panic(err)
		}
		list := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), meta)
		for _, o := range a.sorted(res, match) {
			list = protowire.AppendBytes(protowire.AppendTag(list, 2, protowire.BytesType), encode(res, o))
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(envelope("TestList", list))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(
		map[string]any{"kind": "TestList", "metadata": map[string]any{"resourceVersion": version}, "items": a.sorted(res, match)},
	)
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, res string, match func(map[string]any) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	streamed := r.URL.Query().Get("sendInitialEvents") == "true"
	switch {
	case streamed && a.oldAPI:
		writeStatus(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	case from != 0 && from < a.oldest:
		writeStatus(w, http.StatusGone, "too old")
		return
	}
	binary := a.protobuf(r, res)
	send := func(kind string, o map[string]any) {
		if !binary {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
			return
		}
		raw := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), envelope("Test", encode(res, o)))
		event := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), kind)
		_, _ = w.Write(frame(protowire.AppendBytes(protowire.AppendTag(event, 2, protowire.BytesType), raw)))
	}
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	if streamed {
		for _, o := range a.sorted(res, match) {
			send("ADDED", o)
		}
		from = a.version
		send("BOOKMARK", map[string]any{"metadata": map[string]any{
			"resourceVersion": strconv.Itoa(from), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	cut := a.cut
	for {
		for _, e := range a.events {
			if e.version > from && e.resource == res {
				if match(e.object) {
					send(e.kind, e.object)
				}
				from = e.version
			}
		}
		w.(http.Flusher).Flush()
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
		a.mu.Lock()
		if a.cut != cut || r.Context().Err() != nil {
			return
		}
	}
}

func frame(event []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}
