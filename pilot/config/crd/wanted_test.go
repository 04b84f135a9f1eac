package crd

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// TestManyWantedObjects: few wanted objects of a namespace are read one by one, and many by one list and one watch of
// the namespace. What stays wanted is there all the time, and follows.
func TestManyWantedObjects(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	var mu sync.Mutex
	asked := map[string]bool{} // field selectors, by namespace
	a.refuse = func(_ string, r *http.Request) (int, string) {
		_, namespace := parsePath(r.URL.Path)
		mu.Lock()
		defer mu.Unlock()
		asked[namespace+" "+r.URL.Query().Get("fieldSelector")] = true
		return 0, ""
	}
	readBy := func(what string, want ...string) {
		t.Helper()
		var got []string
		until(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			got = slices.Sorted(maps.Keys(asked))
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s are read by %q", what, got)
		}
		mu.Lock()
		defer mu.Unlock()
		clear(asked)
	}
	value := func(v string) object { return object{"data": object{"v": v}} }
	for i := range 10 {
		a.put("secrets", "a", fmt.Sprint("s", i), value("MQ=="))
	}
	a.put("secrets", "b", "s0", value("MQ=="))
	bounds := limits.Default()
	bounds.WatchedNames = 4
	r := read(t, a, Options{Limits: bounds})
	r.synced()
	want := func(namespace string, from, to int) (list []kinds.Key) {
		for i := from; i < to; i++ {
			list = append(list, kinds.Key{Kind: kinds.Secret, Namespace: namespace, Name: fmt.Sprint("s", i)})
		}
		return list
	}
	has := func(what string, list ...kinds.Key) {
		t.Helper()
		until(t, what, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, k := range list {
				if r.objects[k] == nil {
					return false
				}
			}
			return len(r.objects) == len(list)
		})
	}
	few := append(want("a", 0, 3), want("b", 0, 1)...)
	r.Want(few)
	has("few", few...)
	readBy("few", "a metadata.name=s0", "a metadata.name=s1", "a metadata.name=s2", "b metadata.name=s0")
	before := r.handled()

	r.Want(append(want("a", 0, 12), want("b", 0, 1)...))
	has("many", append(want("a", 0, 10), want("b", 0, 1)...)...)
	readBy("many", "a type!=helm.sh/release.v1")
	until(t, "what is missing", func() bool {
		missing := r.Missing()
		return len(missing) == 2 && slices.Contains(missing, want("a", 10, 11)[0]) && slices.Contains(missing, want("a", 11, 12)[0])
	})
	a.put("secrets", "a", "s11", value("MQ=="))
	a.drop("secrets", "a", "s9")
	a.put("secrets", "a", "s0", value("Mg=="))
	has("changed", append(append(want("a", 0, 9), want("a", 11, 12)...), want("b", 0, 1)...)...)

	// A few less cost nothing.
	r.Want(append(want("a", 0, 4), want("b", 0, 2)...))
	readBy("a few less", "b metadata.name=s1")

	r.Want(want("a", 0, 2))
	has("few again", want("a", 0, 2)...)
	readBy("few again", "a metadata.name=s0", "a metadata.name=s1")
	r.mu.Lock()
	for _, call := range r.calls[before:] {
		for _, c := range call {
			if (c.Name == "s0" || c.Name == "s1") && c.Namespace == "a" && c.Object == nil {
				t.Errorf("%s was gone for a while", c.Key)
			}
		}
	}
	r.mu.Unlock()
	a.put("secrets", "a", "s0", value("Mw=="))
	a.put("secrets", "a", "s3", value("Mw=="))
	until(t, "the last change", func() bool {
		o := r.get(kinds.Secret, "a", "s0")
		return o != nil && string(o.Spec.(*corev1.Secret).Data["v"]) == "3"
	})
	r.Want(nil)
	has("none")
	r.Source.mu.Lock()
	defer r.Source.mu.Unlock()
	if n := len(r.reading); n > 0 {
		t.Errorf("%d namespaces are read", n)
	}
}

// TestWantedOfARemoteCluster: what is wanted from the start is part of the first load of a remote cluster. Where it may
// not be read, the services count without it, and that is a finding.
func TestWantedOfARemoteCluster(t *testing.T) {
	t.Parallel()
	secret := kinds.Key{Kind: kinds.Secret, Cluster: "far", Namespace: "a", Name: "s"}
	for _, forbidden := range []bool{false, true} {
		a := newAPIServer(t)
		a.put("services", "a", "web", object{})
		a.put("secrets", "a", "s", object{"data": object{"v": "MQ=="}})
		a.refuse = func(resource string, _ *http.Request) (int, string) {
			if forbidden && resource == "secrets" {
				return http.StatusForbidden, "no"
			}
			return 0, ""
		}
		r := read(t, a, Options{Cluster: "far", Kinds: []*kinds.Kind{kinds.Service}}, secret)
		r.synced()
		r.mu.Lock()
		first := len(r.calls[0])
		r.mu.Unlock()
		if want := map[bool]int{false: 2, true: 1}[forbidden]; first != want {
			t.Errorf("forbidden %t: the first load has %d objects", forbidden, first)
		}
		until(t, "the finding", func() bool {
			return slices.ContainsFunc(r.Findings(), func(d diag.Diagnostic) bool { return strings.Contains(d.String(), "secrets") }) == forbidden
		})
		r.stop()
	}
}
