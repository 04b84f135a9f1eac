package crd

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// TestCurrent: the version of an object is its generation, or for a core kind the object as a Source reads it.
func TestCurrent(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	o := sidecar("a/*")
	o["metadata"] = object{"generation": 3, "uid": "one"}
	a.put(pathOf(kinds.Sidecar), "a", "one", o)
	a.put(pathOf(kinds.Service), "a", "web", object{
		"metadata": object{"uid": "two", "labels": object{"app": "web"}}, "spec": object{"ports": []any{object{"name": "http", "port": 80}}},
	})
	key := func(k *kinds.Kind, name string) kinds.Key { return kinds.Key{Kind: k, Namespace: "a", Name: name} }
	v, err := Current(t.Context(), a.config(), key(kinds.Sidecar, "one"))
	if must.Succeed(t, err); v.Generation != 3 || v.UID != "one" || v.Object != nil {
		t.Errorf("%+v", v)
	}
	v, err = Current(t.Context(), a.config(), key(kinds.Service, "web"))
	must.Succeed(t, err)
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Service}})
	r.synced()
	if was := r.get(kinds.Service, "a", "web"); v.Generation != 0 || v.UID != "two" || v.Object == nil || !config.Equal(v.Object, was) {
		t.Errorf("%+v, and a Source reads %+v", v, was)
	}
	for _, k := range []kinds.Key{key(kinds.Sidecar, "none"), key(kinds.Service, "none"), key(kinds.Gateway, "one")} {
		if _, err := Current(t.Context(), a.config(), k); !apierrors.IsNotFound(err) {
			t.Errorf("%v: %v", k, err)
		}
	}
}
