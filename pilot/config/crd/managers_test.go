package crd

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// writes records authors.
type writes struct {
	mu   sync.Mutex
	list []string
}

func (w *writes) Wrote(x config.Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, fmt.Sprint(x.Key, " ", x.Generation, " ", x.Manager))
}

func (w *writes) has(want string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.list {
		if x == want {
			return true
		}
	}
	return false
}

// TestAuthors: each version after the first load has an author, in JSON and in protobuf. A version that is not in force
// as it is written, and one with a field that is unknown, are marked.
func TestAuthors(t *testing.T) {
	t.Parallel()
	forEachEncoding(t, func(t *testing.T, change func(*apiServer)) {
		a, w := newAPIServer(t, kinds.Sidecar), &writes{}
		change(a)
		const sidecars = "sidecars.networking.istio.io"
		a.put(sidecars, "a", "s", sidecar("./*"))
		a.put("configmaps", "a", "m", configMap("1"))
		r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.ConfigMap, kinds.Sidecar}, Writes: w})
		r.synced()
		if len(w.list) > 0 {
			t.Errorf("authors of the first load: %v", w.list)
		}
		of := func(generation int, o object) object {
			o["metadata"] = object{"generation": generation}
			return o
		}
		a.put(sidecars, "a", "s", of(90, sidecar("~/*")))
		a.put("configmaps", "a", "m", configMap("2"))
		until(t, "authors are known", func() bool { return w.has("Sidecar a/s 90 test") && w.has("ConfigMap a/m 0 test") })
		key := kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "s"}
		if g, is := r.Unusable(key); is {
			t.Errorf("a good one is unusable: %d", g)
		}
		a.put(sidecars, "a", "s", of(91, object{"spec": 1}))
		until(t, "it is unusable", func() bool {
			g, is := r.Unusable(key)
			return is && g == 91
		})
		if o := r.get(kinds.Sidecar, "a", "s"); o == nil || o.Generation != 90 || o.Partial {
			t.Errorf("in force is %+v", o)
		}
		newer := sidecar("./*")
		newer["spec"].(object)["newerField"] = 1
		a.put(sidecars, "a", "s", of(92, newer))
		until(t, "it is used, without the field", func() bool {
			o := r.get(kinds.Sidecar, "a", "s")
			return o.Generation == 92 && o.Partial
		})
		if _, is := r.Unusable(key); is {
			t.Error("a newer field makes it unusable")
		}
		a.drop(sidecars, "a", "s")
		until(t, "gone", func() bool { return r.get(kinds.Sidecar, "a", "s") == nil })
		if _, is := r.Unusable(key); is {
			t.Error("a deleted one is unusable")
		}
	})
}

// TestManagers: the author is the manager of the newest write that is not to the status.
func TestManagers(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) *metav1.Time {
		x := metav1.Unix(seconds, 0)
		return &x
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "first", Time: at(10)}, {Manager: "newest", Time: at(30)}, {Manager: "controller", Time: at(40), Subresource: "status"},
		{Manager: "older", Time: at(20)},
	}}}
	binary, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if m, when := managerIn(binary); m != "newest" || when.Unix() != 30 {
		t.Errorf("in protobuf: %q at %v", m, when)
	}
	const old, fresh = `"time": "2025-01-02T03:04:05Z"`, `"time": "2026-01-02T03:04:05Z"`
	for text, want := range map[string]string{
		`{"manager": "a", ` + fresh + `}, {"manager": "b", ` + old + `}`: "a",
		`{"manager": "a"}, {"manager": "b"}`:                             "b",
		`{"manager": "a", "subresource": "status"}`:                      "",
		``: "", `1`: "", `{`: "",
	} {
		if m, _ := managerOf([]byte(`{"metadata": {"managedFields": [` + text + `]}}`)); m != want {
			t.Errorf("%s: %q", text, m)
		}
	}
}
