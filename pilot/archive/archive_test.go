package archive

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

var web = kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}

// virtualService returns a version of web.
func virtualService(generation int64, host string, change ...func(*kinds.Object)) *kinds.Object {
	o := &kinds.Object{Key: web, UID: "1", Generation: generation, Spec: &networkingv1.VirtualService{Hosts: []string{host}}}
	for _, c := range change {
		c(o)
	}
	return o
}

// TestVersions: what is a version, and what is not.
func TestVersions(t *testing.T) {
	labelled := func(o *kinds.Object) { o.Labels = map[string]string{"istio.io/rev": "next"} }
	again := func(o *kinds.Object) { o.UID = "2" }
	inFile := func(o *kinds.Object) { o.UID, o.Position = "", "web.yaml:1:1" }
	route := func(generation int64, status string) *kinds.Object {
		r := &gatewayv1.HTTPRoute{}
		r.Status.Parents = []gatewayv1.RouteParentStatus{{ControllerName: gatewayv1.GatewayController(status)}}
		return &kinds.Object{Key: kinds.Key{Kind: kinds.HTTPRoute, Namespace: "a", Name: "r"}, Generation: generation, Spec: r}
	}
	for name, c := range map[string]struct {
		before *kinds.Object
		then   []*kinds.Object
		want   string // generation, or - for a deletion
	}{
		"created":               {nil, []*kinds.Object{virtualService(1, "a")}, "1"},
		"changed":               {virtualService(1, "a"), []*kinds.Object{virtualService(2, "b")}, "1 2"},
		"again":                 {virtualService(2, "b"), []*kinds.Object{virtualService(2, "b"), virtualService(2, "b")}, ""},
		"labels":                {virtualService(2, "b"), []*kinds.Object{virtualService(2, "b", labelled)}, "2 2"},
		"deleted":               {virtualService(2, "b"), []*kinds.Object{nil, nil}, "2 -"},
		"created again":         {virtualService(1, "b"), []*kinds.Object{nil, virtualService(1, "b", again)}, "1 - 1"},
		"deleted between":       {virtualService(1, "b"), []*kinds.Object{virtualService(1, "b", again)}, "1 1"},
		"status":                {route(3, "x"), []*kinds.Object{route(3, "y"), route(4, "y")}, "3 4"},
		"in a file, moved":      {virtualService(0, "a", inFile), []*kinds.Object{virtualService(0, "a", inFile)}, ""},
		"in a file, changed":    {virtualService(0, "a", inFile), []*kinds.Object{virtualService(0, "b", inFile)}, "0 0"},
		"more than are kept":    {nil, []*kinds.Object{virtualService(1, "a"), virtualService(2, "b"), virtualService(3, "c"), nil}, "2 3 -"},
		"never there":           {nil, []*kinds.Object{nil}, "-"},
		"of an earlier release": {virtualService(9, "a"), []*kinds.Object{virtualService(3, "b")}, "9 3"},
	} {
		a := New(Options{Versions: 3})
		key := web
		if c.before != nil {
			key = c.before.Key
		}
		for i, o := range c.then {
			a.Add(Change{Key: key, Object: o, Before: c.before, Revision: uint64(i + 5), Time: time.Unix(int64(i), 0)})
		}
		list, _ := a.Versions(key)
		var got []string
		for _, v := range list {
			if got = append(got, fmt.Sprint(v.Generation)); v.Gone {
				got[len(got)-1] = "-"
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: versions %q, want %q", name, s, c.want)
		}
	}
}

// TestRevisions: a version has the revision of its commit. If the commit changed nothing, it has the revision of the
// version before, and without one, all up to that revision matters.
func TestRevisions(t *testing.T) {
	a := New(Options{})
	a.Add(Change{Key: web, Object: virtualService(1, "a"), Revision: 7, Unchanged: true})
	a.Add(Change{Key: web, Object: virtualService(2, "b"), Revision: 8})
	a.Add(Change{Key: web, Object: virtualService(3, "b"), Revision: 9, Unchanged: true})
	list, _ := a.Versions(web)
	if len(list) != 3 || list[0].Revision != 7 || !list[0].AsOld || list[1].Revision != 8 || list[1].AsOld ||
		list[2].Revision != 8 || list[2].AsOld {
		t.Errorf("%+v", list)
	}
	a.Outcome(web, 8, 5, 1, true, time.Time{})
	if list, _ = a.Versions(web); list[1].Proxies != 5 {
		t.Errorf("not settled: %+v", list[1])
	}
	a.Outcome(web, 8, 5, 4, true, time.Time{})
	a.Outcome(web, 8, 3, 3, true, time.Unix(9, 0))  // a proxy that had it and one that lacked it have left
	a.Outcome(web, 8, 9, 9, true, time.Unix(10, 0)) // settled already
	if list, _ = a.Versions(web); list[1].Proxies != 4 || list[1].Settled != time.Unix(9, 0) || !list[1].Counted || list[0].Proxies != 0 {
		t.Errorf("outcomes %+v", list)
	}
}

// TestRefuse: a version that is not used as it is written is marked. The last good version, which stays, is not.
func TestRefuse(t *testing.T) {
	partial := func(o *kinds.Object) { o.UID, o.Position, o.Partial = "", "web.yaml:1:1", true }
	inFile := func(o *kinds.Object) { o.UID, o.Position = "", "web.yaml:1:1" }
	secret := &kinds.Object{Key: kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"}, UID: "1", Spec: &corev1.Secret{}}
	for name, c := range map[string]struct {
		then    *kinds.Object
		refused int64
		want    bool
	}{
		"its generation":            {virtualService(2, "b"), 2, true},
		"a later generation":        {virtualService(2, "b"), 3, false},
		"a part of a file":          {virtualService(0, "b", partial), 0, true},
		"the last good of a file":   {virtualService(0, "b", inFile), 0, false},
		"a Secret":                  {secret, 0, true},
		"a deletion before the end": {nil, 0, false},
	} {
		a, key := New(Options{}), web
		if c.then != nil {
			key = c.then.Key
		}
		a.Add(Change{Key: key, Object: c.then, Revision: 2})
		a.Refuse(key, c.refused)
		if list, _ := a.Versions(key); len(list) != 1 || list[0].Invalid != c.want {
			t.Errorf("%s: %+v", name, list)
		}
	}
	New(Options{}).Refuse(web, 1) // the archive does not have the object
}

// TestAuthors: a version has the author of the same generation, and no author of another version.
func TestAuthors(t *testing.T) {
	a := New(Options{})
	a.Wrote(config.Write{Key: web, Generation: 2, Manager: "kubectl", Time: time.Unix(50, 0)})
	a.Add(Change{Key: web, Object: virtualService(2, "b"), Revision: 5})
	a.Wrote(config.Write{Key: web, Generation: 4, Manager: "helm"})
	a.Add(Change{Key: web, Object: virtualService(3, "c"), Revision: 6})
	a.Add(Change{Key: web, Object: virtualService(4, "d"), Revision: 7})
	list, _ := a.Versions(web)
	if len(list) != 3 || list[0].Manager != "kubectl" || list[0].Written != time.Unix(50, 0) || list[1].Manager != "" ||
		list[2].Manager != "helm" {
		t.Errorf("%+v", list)
	}
}

// TestBounds: objects, versions of workloads and bytes are bounded, and the floor is not older than what was dropped.
func TestBounds(t *testing.T) {
	a := New(Options{Objects: 10, Workloads: 3, Bytes: 2000})
	key := func(k *kinds.Kind, i int) kinds.Key { return kinds.Key{Kind: k, Namespace: "a", Name: fmt.Sprint(i)} }
	revision := uint64(0)
	put := func(i int) {
		revision++
		k, pod := key(kinds.VirtualService, i), key(kinds.Pod, i%2)
		o := virtualService(int64(revision), strings.Repeat("x", 200)+fmt.Sprint(revision))
		o.Key = k
		a.Add(Change{Key: k, Object: o, Revision: revision})
		a.Add(Change{Key: pod, Object: &kinds.Object{Key: pod, Spec: &corev1.Pod{}}, Revision: revision})
	}
	for i := range 15 {
		put(i)
	}
	for range 20 {
		for i := range 8 {
			put(5 + i)
		}
		a.Encode()
	}
	kept := 0
	for i := range 15 {
		list, floor := a.Versions(key(kinds.VirtualService, i))
		if kept += min(1, len(list)); floor != 5 || len(list) > 8 { // the newest version of the object that was dropped last
			t.Errorf("object %d: %d versions, floor %d", i, len(list), floor)
		}
	}
	if kept != 10 || a.bytes > 2000 || len(a.encoded) > 20 {
		t.Errorf("%d objects, %d bytes, %d contents", kept, a.bytes, len(a.encoded))
	}
	sum := 0
	for _, k := range a.objects.entries.Keys() {
		e, _ := a.objects.entries.Peek(k)
		for _, v := range e.versions {
			sum += len(v.content)
		}
	}
	if sum != a.bytes || sum == 0 {
		t.Errorf("%d bytes are counted of %d", a.bytes, sum)
	}
	if list, floor := a.Versions(key(kinds.Pod, 0)); len(list) != ofWorkload || floor != 0 {
		t.Errorf("a Pod has %d versions, floor %d", len(list), floor)
	}
	many := New(Options{})
	for i := range 2*maxUnencoded + 2 {
		k := key(kinds.VirtualService, i/2)
		o := virtualService(int64(i), "a")
		o.Key = k
		many.Add(Change{Key: k, Object: o, Revision: uint64(i + 1)})
	}
	if len(many.waiting) != maxUnencoded {
		t.Errorf("%d versions wait", len(many.waiting))
	}
	if r := many.Restore(key(kinds.VirtualService, maxUnencoded), 1); r.Command != "" || r.Lost == "" {
		t.Errorf("one too many: %+v", r)
	}
}

// TestSecrets: nothing is kept of a Secret but that it changed.
func TestSecrets(t *testing.T) {
	k := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"}
	secret := func(value string) *kinds.Object {
		return &kinds.Object{Key: k, UID: "1", Spec: &corev1.Secret{Data: map[string][]byte{"tls.key": []byte(value)}}}
	}
	a := New(Options{})
	a.Add(Change{Key: k, Object: secret("S3CRET"), Before: secret("older"), Revision: 2})
	a.Add(Change{Key: k, Object: secret("other"), Revision: 3})
	a.Add(Change{Key: k, Revision: 4})
	a.Encode()
	e, _ := a.objects.entries.Peek(k)
	for i, v := range e.versions {
		if v.object != nil || v.content != nil || v.hash != "" {
			t.Errorf("version %d is kept: %+v", i, v)
		}
		if r := a.Restore(k, i); r.Command != "" || r.Lost == "" {
			t.Errorf("version %d: %+v", i, r)
		}
	}
	if len(e.versions) != 4 {
		t.Errorf("%d versions", len(e.versions))
	}
	if Content(secret("x")) == Content(secret("y")) {
		t.Error("two contents have one hash")
	}
	typed := secret("x")
	typed.Spec.(*corev1.Secret).Type = corev1.SecretTypeTLS
	if Content(secret("x")) == Content(typed) {
		t.Error("two types have one hash")
	}
	// An API server stores text as data, and the type Opaque where none is given. Tools add labels and annotations.
	written := &kinds.Object{Key: k, Spec: &corev1.Secret{StringData: map[string]string{"tls.key": "x"}}}
	stored := secret("x")
	stored.Spec.(*corev1.Secret).Type = corev1.SecretTypeOpaque
	stored.Labels, stored.Annotations = map[string]string{"by": "helm"}, map[string]string{"release": "1"}
	if Content(written) != Content(stored) {
		t.Error("a Secret that is written and the one that an API server stores have two hashes")
	}
}

// TestContent: a hash is of what a user writes.
func TestContent(t *testing.T) {
	base := Content(virtualService(1, "a"))
	for name, o := range map[string]*kinds.Object{
		"another generation": virtualService(2, "a"),
		"a status": virtualService(1, "a", func(o *kinds.Object) {
			o.Annotations = map[string]string{kinds.AnnotationHealthy: "true"}
		}),
		"another name":   virtualService(1, "a", func(o *kinds.Object) { o.Name = "other" }),
		"a position":     virtualService(1, "a", func(o *kinds.Object) { o.Position = "b.yaml:2:1" }),
		"empty metadata": virtualService(1, "a", func(o *kinds.Object) { o.Labels = map[string]string{} }),
	} {
		if Content(o) != base {
			t.Errorf("%s makes another content", name)
		}
	}
	for name, o := range map[string]*kinds.Object{
		"another host": virtualService(1, "b"),
		"a label":      virtualService(1, "a", func(o *kinds.Object) { o.Labels = map[string]string{"a": "b"} }),
		"a note":       virtualService(1, "a", func(o *kinds.Object) { o.Annotations = map[string]string{"a": "b"} }),
	} {
		if Content(o) == base || Content(o) == "" {
			t.Errorf("%s makes no other content", name)
		}
	}
	service := func(status string) *kinds.Object {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "9"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: status}}
		return &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web"}, Spec: s}
	}
	if Content(service("1")) != Content(service("2")) {
		t.Error("a status is content")
	}
}

// TestRestore: a shell that runs the command gets the content of the version before, even if its texts hold shell
// commands. There is no command for what was not in force as it was written.
func TestRestore(t *testing.T) {
	evil := virtualService(1, "a", func(o *kinds.Object) {
		o.Annotations = map[string]string{"note": "$(touch evil) `touch evil`\nEOF\nEND_\ntouch evil\n"}
	})
	a := New(Options{})
	a.Add(Change{Key: web, Object: evil, Revision: 2})
	a.Add(Change{Key: web, Object: virtualService(2, "b"), Revision: 3})
	check := func(name string, i int, want string) {
		t.Helper()
		if r := a.Restore(web, i); !strings.Contains(r.Command+r.Lost, want) || (r.Command == "") == (r.Lost == "") {
			t.Errorf("%s: %+v, want %q", name, r, want)
		}
	}
	check("before it is encoded", 1, "- a\n")
	a.Encode()
	check("created", 0, "kubectl delete virtualservices.networking.istio.io web -n a")
	command := a.Restore(web, 1).Command
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\ncat > applied\n"), 0o755)) //nolint:gosec // It is run.
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Dir, shell.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v %s: %s", err, out, command)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Errorf("the text of an object was run: %s", command)
	}
	text, err := os.ReadFile(filepath.Join(dir, "applied"))
	must.Succeed(t, err)
	if !strings.Contains(string(text), "hosts:\n  - a\n") || !strings.Contains(string(text), "touch evil") {
		t.Errorf("applied:\n%s", text)
	}

	a.Add(Change{Key: web, Revision: 4})
	check("deleted", 2, "- b\n")
	a.Add(Change{Key: web, Object: virtualService(1, "c", func(o *kinds.Object) { o.Partial = true }), Revision: 5})
	check("created again", 3, "kubectl delete ")
	a.Add(Change{Key: web, Object: virtualService(2, "d"), Revision: 6})
	a.Encode()
	check("with a field that is unknown", 4, "not all that was written was in force")
	a.Add(Change{Key: web, Object: virtualService(3, strings.Repeat("e", maxContent)), Revision: 7})
	a.Add(Change{Key: web, Object: virtualService(4, "f", func(o *kinds.Object) { o.Position = "b.yaml:3:1" }), Revision: 8})
	a.Encode()
	check("a large one", 6, "it is too large")
	a.Add(Change{Key: web, Object: virtualService(5, "g", func(o *kinds.Object) { o.Position = "b.yaml:3:1" }), Revision: 9})
	a.Encode()
	check("in a file", 7, "write to b.yaml:3:1:\napiVersion: networking.istio.io/v1\n")
	a.Add(Change{Key: web, Object: virtualService(6, "h"), Revision: 10})
	check("the oldest one that is kept", 0, "it is too old")
	far := kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web", Cluster: "far"}
	a.Add(Change{Key: far, Object: &kinds.Object{Key: far, Spec: &corev1.Service{}}, Revision: 11})
	if r := a.Restore(far, 0); r.Command != "kubectl delete services web -n a # in cluster far" {
		t.Errorf("%+v", r)
	}
	if a.Add(Change{Key: kinds.Key{Kind: kinds.JWKS, Name: "x"}, Revision: 12}) {
		t.Error("a fact has a version")
	}
}
