package bootstrap

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestWatchNamespace runs a server that is limited to a namespace. It requests objects of no other namespace than it
// and the root namespace, and publishes roots in no other. A namespace that does not exist is a finding. Objects of
// ignored kinds are not requested, and that is a finding.
func TestWatchNamespace(t *testing.T) {
	var mu sync.Mutex
	requested := map[string]bool{}
	api := &apiserver.Server{Streamed: kinds.All(), Intercept: func(r *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		requested[r.URL.Path] = true
		return nil
	}}
	asks := func(path string) bool {
		mu.Lock()
		defer mu.Unlock()
		return requested[path]
	}
	put := func(path, apiVersion, kind, name string) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		u.SetName(name)
		api.Put(path+"/"+name, u)
	}
	for _, name := range []string{"another", "istio-system"} {
		put("/api/v1/namespaces", "v1", "Namespace", name)
	}
	for _, name := range []string{"sidecars.networking.istio.io", "telemetries.telemetry.istio.io"} {
		put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
	}
	at := httptest.NewServer(api)
	t.Cleanup(at.Close)
	o := certificateOptions(t)
	o.ConfigDir, o.Certificates.StateDir, o.Certificates.RootsMap, o.Certificates.CRLMap = "", "", "roots", "revoked"
	o.Client, o.PodName, o.NoElection, o.WatchNamespace = &rest.Config{Host: at.URL}, "istiod-0", true, "shop"
	o.Ignored = []*kinds.Kind{kinds.PeerAuthentication, kinds.Telemetry}
	s, err := New(o)
	must.Succeed(t, err)
	run(t, s)
	find := func(code string) (severities []diag.Severity) {
		for _, d := range s.from.Findings() {
			if d.Code == code {
				severities = append(severities, d.Severity)
			}
		}
		return severities
	}
	missing := func() bool { return len(find("WatchedNamespace")) > 0 }
	eventually(t, "the finding", missing)
	put("/api/v1/namespaces", "v1", "Namespace", "shop")
	for _, namespace := range []string{"shop", "istio-system"} {
		eventually(t, "the roots", func() bool { return api.Object("/api/v1/namespaces/"+namespace+"/configmaps/roots") != nil })
		eventually(t, "what is read", func() bool {
			return asks("/api/v1/namespaces/"+namespace+"/services") && asks("/apis/networking.istio.io/v1/namespaces/"+namespace+"/sidecars")
		})
	}
	eventually(t, "no finding", func() bool { return !missing() })
	if got := find("IgnoredKinds"); !slices.Equal(got, []diag.Severity{diag.Warning, diag.Info}) {
		t.Errorf("findings about ignored kinds: %v", got)
	}
	if api.Object("/api/v1/namespaces/another/configmaps/roots") != nil {
		t.Error("roots in another namespace")
	}
	for _, k := range kinds.All() {
		for _, version := range k.Versions {
			path := "/apis/" + k.Group + "/" + version + "/"
			if k.Group == "" {
				path = "/api/" + version + "/"
			}
			if slices.Contains(o.Ignored, k) && asks(path+"namespaces/shop/"+k.Plural) {
				t.Errorf("%s are read", k.Plural)
			}
			if !k.Cluster && asks(path+k.Plural) || asks(path+"namespaces/another/"+k.Plural) {
				t.Errorf("%s are read in all namespaces, or in another one", k.Plural)
			}
		}
	}
}
