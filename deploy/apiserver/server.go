package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Server is an API server. Its zero value is empty and serves every kind.
type Server struct {
	// Intercept is called before each request, and may wait for the end of its context. Its error is the answer. Nil if
	// there are no faults. Once requests are made, change it only within Set.
	Intercept func(r *http.Request) error
	// Streamed are the kinds whose lists can be the first events of a watch. API servers do this since Kubernetes 1.32.
	Streamed []*kinds.Kind

	mu      sync.Mutex
	version int
	objects map[string]*unstructured.Unstructured // by path
	events  []event
	changed chan struct{} // closed at the next event
	writes  []Write
}

// Write is a request that changes an object, or would do so without a fault or a dry run.
type Write struct {
	Method, Path string
	DryRun       bool
	At           time.Time
}

func (w Write) String() string { return w.Method + " " + w.Path }

// event is a change of an object.
type event struct {
	version int
	kind    string // the type in watches: ADDED, MODIFIED, DELETED
	path    string
	object  *unstructured.Unstructured
}

// Set calls change while no request is being handled.
func (s *Server) Set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Config returns the configuration of clients that call the Server within the process.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://api", QPS: -1, Transport: s}
}

// Put creates or replaces an object. path is the path of its URL, such as /api/v1/namespaces/a/configmaps/b.
func (s *Server) Put(path string, object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(path, object)
}

// Drop deletes an object.
func (s *Server) Drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(path)
}

// Object returns an object, or nil.
func (s *Server) Object(path string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path].DeepCopy()
}

// Writes returns the writes since the last call.
func (s *Server) Writes() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.writes
	s.writes = nil
	return list
}

// put stores and returns a copy of an object. The caller holds the lock.
func (s *Server) put(path string, object *unstructured.Unstructured) *unstructured.Unstructured {
	if s.objects == nil {
		s.objects = map[string]*unstructured.Unstructured{}
	}
	object = object.DeepCopy()
	kind := "ADDED"
	if before := s.objects[path]; before != nil {
		kind = "MODIFIED"
		object.SetUID(before.GetUID())
	} else if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprint("uid-", s.version)))
	}
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[path] = object
	s.note(kind, path, object)
	return object
}

func (s *Server) drop(path string) {
	if object := s.objects[path]; object != nil {
		s.version++
		delete(s.objects, path)
		s.note("DELETED", path, object)
	}
}

func (s *Server) note(kind, path string, object *unstructured.Unstructured) {
	s.events = append(s.events, event{s.version, kind, path, object})
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// target holds the parts of a request's path.
type target struct {
	group, version, namespace, resource, name string
	status                                    bool
}

func parse(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.group, t.version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && !slices.Contains([]string{"status", "finalize"}, parts[2]) {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	t.status = len(parts) > 2
	return t, true
}

// path returns the path of an object of the target's resource.
func (t target) path(namespace, name string) string {
	path := "/api/" + t.version
	if t.group != "" {
		path = "/apis/" + t.group + "/" + t.version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + t.resource + "/" + name
}

// is reports whether the object at a path belongs to the target's resource and namespace.
func (t target) is(path string, o *unstructured.Unstructured) bool {
	return path == t.path(o.GetNamespace(), o.GetName()) && (t.namespace == "" || t.namespace == o.GetNamespace())
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, code, err := s.answer(w, r)
	if err != nil {
		status := apierrors.NewInternalError(err)
		errors.As(err, &status)
		said := status.Status()
		said.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		answer, code = said, int(said.Code)
	}
	if answer == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// answer handles a request. It returns nil if the response is already written.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (any, int, error) {
	t, ok := parse(r.URL.Path)
	s.mu.Lock()
	intercept := s.Intercept
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, Write{r.Method, r.URL.Path, r.URL.Query().Has("dryRun"), time.Now()})
	}
	s.mu.Unlock()
	if intercept != nil {
		if err := cmp.Or(intercept(r), r.Context().Err()); err != nil {
			return nil, 0, err
		}
	}
	if r.URL.Path == "/version" {
		return map[string]string{"major": "1", "minor": "37"}, http.StatusOK, nil
	}
	if !ok {
		return nil, 0, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "no such path", 0, false)
	}
	if r.URL.Query().Has("sendInitialEvents") && s.kind(t) == nil {
		return nil, 0, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r, t)
		return nil, 0, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet && t.name == "" {
		return s.list(r, t)
	}
	return s.single(r, t, body)
}

// single handles a request about one object. The caller holds the lock.
func (s *Server) single(r *http.Request, t target, body []byte) (any, int, error) {
	resource := schema.GroupResource{Group: t.group, Resource: t.resource}
	sent := &unstructured.Unstructured{}
	apply := r.Header.Get("Content-Type") == string(types.ApplyPatchType)
	if r.Method == http.MethodPost || r.Method == http.MethodPut || apply {
		if err := sent.UnmarshalJSON(body); err != nil {
			return nil, 0, apierrors.NewBadRequest(err.Error())
		}
		sent.SetNamespace(t.namespace)
	}
	if r.Method == http.MethodPost {
		t.name = sent.GetName()
	}
	path := t.path(t.namespace, t.name)
	had, dry := s.objects[path], r.URL.Query().Has("dryRun")
	switch {
	case r.Method == http.MethodPost && had != nil:
		return nil, 0, apierrors.NewAlreadyExists(resource, t.name)
	case r.Method == http.MethodPost && dry:
		return sent, http.StatusCreated, nil
	case r.Method == http.MethodPost || apply && had == nil:
		return s.put(path, sent), http.StatusCreated, nil
	case had == nil:
		return nil, 0, apierrors.NewNotFound(resource, t.name)
	case r.Method == http.MethodGet:
		return had, http.StatusOK, nil
	case r.Method == http.MethodDelete:
		s.drop(path)
		return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, http.StatusOK, nil
	}
	next := sent
	if r.Method == http.MethodPatch {
		var err error
		if next, err = patched(had, r.Header.Get("Content-Type"), body); err != nil {
			return nil, 0, apierrors.NewBadRequest(err.Error())
		}
	}
	if v := next.GetResourceVersion(); v != "" && v != had.GetResourceVersion() {
		return nil, 0, apierrors.NewConflict(resource, t.name, errors.New("the object has been modified"))
	}
	if equal(next, had) {
		return had, http.StatusOK, nil
	}
	return s.put(path, next), http.StatusOK, nil
}

func equal(a, b *unstructured.Unstructured) bool {
	one, _ := a.MarshalJSON()
	two, _ := b.MarshalJSON()
	return string(one) == string(two)
}

// patched returns an object after a patch.
func patched(had *unstructured.Unstructured, contentType string, patch []byte) (*unstructured.Unstructured, error) {
	text, err := had.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if contentType == string(types.StrategicMergePatchType) { // equivalent for lists of webhooks
		text, err = strategicpatch.StrategicMergePatch(text, patch, registrationv1.ValidatingWebhookConfiguration{})
	} else {
		text, err = jsonpatch.MergePatch(text, patch)
	}
	if err != nil {
		return nil, err
	}
	next := &unstructured.Unstructured{}
	return next, next.UnmarshalJSON(text)
}

// selects reports whether the selectors of a request match an object.
func selects(r *http.Request, o *unstructured.Unstructured) bool {
	q := r.URL.Query()
	l, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return false
	}
	f, err := fields.ParseSelector(q.Get("fieldSelector"))
	named := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	return err == nil && l.Matches(labels.Set(o.GetLabels())) && f.Matches(named)
}

// matching returns the paths of the objects in a list, in order. The caller holds the lock.
func (s *Server) matching(r *http.Request, t target) (paths []string) {
	for path, o := range s.objects {
		if t.is(path, o) && selects(r, o) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// list handles a list. The caller holds the lock.
func (s *Server) list(r *http.Request, t target) (any, int, error) {
	items, last, meta := []any{}, "", map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit")) // 0 for all
	for _, path := range s.matching(r, t) {
		if path <= r.URL.Query().Get("continue") {
			continue
		}
		if limit > 0 && len(items) == limit {
			meta["continue"] = last
			break
		}
		items, last = append(items, s.objects[path].Object), path
	}
	return map[string]any{
		"apiVersion": schema.GroupVersion{Group: t.group, Version: t.version}.String(), "kind": "List", "items": items, "metadata": meta,
	}, http.StatusOK, nil
}

// kind returns the kind of a resource whose lists are streamed, or nil.
func (s *Server) kind(t target) *kinds.Kind {
	for _, k := range s.Streamed {
		if k.Group == t.group && k.Plural == t.resource {
			return k
		}
	}
	return nil
}

// bookmark returns the object that ends a streamed list.
func (s *Server) bookmark(r *http.Request, t target, version int) map[string]any {
	gv, kind := schema.GroupVersion{Group: t.group, Version: t.version}, s.kind(t).Name
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		gv, kind = metav1.SchemeGroupVersion, "PartialObjectMetadata"
	}
	return map[string]any{
		"apiVersion": gv.String(), "kind": kind,
		"metadata": map[string]any{
			"resourceVersion": strconv.Itoa(version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
}

// watch handles a watch. It begins with a list if the request says so.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind string, o map[string]any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
	}
	s.mu.Lock()
	last, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil || last == 0 {
		last = s.version
	}
	if r.URL.Query().Has("sendInitialEvents") {
		last = s.version
		for _, path := range s.matching(r, t) {
			send("ADDED", s.objects[path].Object)
		}
		send("BOOKMARK", s.bookmark(r, t, last))
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		due := s.events[min(last, len(s.events)):] // there is one event for each version
		last = s.version
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		for _, e := range due {
			o := e.object
			switch {
			case !t.is(e.path, o):
			case selects(r, o):
				send(e.kind, o.Object)
			case e.kind == "MODIFIED": // it may have been selected before
				send("DELETED", o.Object)
			}
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
