//go:build compat

package gatewaystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const recordings = "../../../pilot/derive/gatewayapi/testdata/istiod"

// edits are changes of specifications, by kind, that do not change the meaning of the objects.
var edits = map[*kinds.Kind]func(spec map[string]any){
	kinds.KubeGateway: func(spec map[string]any) {
		spec["infrastructure"] = map[string]any{"labels": map[string]any{"edited": "true"}}
	},
	kinds.HTTPRoute: anotherParent, kinds.GRPCRoute: anotherParent, kinds.TLSRoute: anotherParent, kinds.TCPRoute: anotherParent,
	kinds.BackendTLSPolicy: func(spec map[string]any) { spec["options"] = map[string]any{"example.com/edited": "true"} },
	kinds.XBackendTrafficPolicy: func(spec map[string]any) {
		spec["sessionPersistence"] = map[string]any{"sessionName": "edited"}
	},
	kinds.ListenerSet:  nil,
	kinds.GatewayClass: nil,
}

func anotherParent(spec map[string]any) {
	parents, _ := spec["parentRefs"].([]any)
	spec["parentRefs"] = append(parents, map[string]any{"name": "nowhere", "namespace": "nowhere"})
}

// TestGenerationsAsIstiod runs both control planes on the same objects, before and after half of them are edited.
// Conditions that both write have the same observedGeneration.
func TestGenerationsAsIstiod(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordings, "*.txtar"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	istiod, err := binaries.Tool("istiod", "ISTIOD")
	must.Succeed(t, err)
	ours := os.Getenv("PILOT_DISCOVERY")
	if ours == "" {
		t.Fatal("PILOT_DISCOVERY names no program")
	}
	theirs, own := observed(t, istiod, files), observed(t, ours, files)
	compared, edited := 0, 0
	for _, path := range slices.Sorted(maps.Keys(theirs)) {
		got, both := own[path]
		if !both {
			continue // which conditions there are is compared with recordings
		}
		compared++
		if theirs[path] > 1 {
			edited++
		}
		if got != theirs[path] {
			t.Errorf("%s: istiod has observed generation %d, this control plane %d", path, theirs[path], got)
		}
	}
	t.Logf("%d conditions of %d and %d, %d of edited objects", compared, len(theirs), len(own), edited)
	if compared < 200 || edited < 50 {
		t.Errorf("only %d conditions were compared, %d of edited objects", compared, edited)
	}
}

// observed runs a control plane on each case, and returns the observedGeneration of each condition.
func observed(t *testing.T, program string, files []string) map[string]int64 {
	ctx, c := installed.CRDs(t, cluster.Options{ServiceCIDR: "10.64.0.0/16"})
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	crds, err := cluster.ExperimentalGatewayCRDs(ctx)
	must(err)
	names, err := filepath.Glob(filepath.Join(crds, "gateway.*.yaml"))
	must(err)
	for _, name := range names {
		must(c.InstallCRDs(ctx, name))
	}
	must(c.ApplyPath(ctx, filepath.Join(recordings, "world", "objects.yaml")))
	installed.Peer{
		Program: program, Kubeconfig: c.Kubeconfig(),
		Env: []string{"PILOT_ENABLE_ALPHA_GATEWAY_API=true", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false"},
	}.Start(ctx, t)
	all := map[string]int64{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		must(err)
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		must(c.Apply(ctx, a.Files[0].Data))
		collect(settled(ctx, t, c), name+" first ", all)
		for _, o := range list(ctx, t, c) {
			if kind, edit := editOf(o); len(nameOf(o))%2 == 0 && edit != nil { // the same ones for both
				spec := o.Object["spec"].(map[string]any)
				edit(spec)
				patch, err := json.Marshal(map[string]any{"spec": spec})
				must(err)
				_, err = c.Dynamic().Resource(resource(kind)).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch,
					metav1.PatchOptions{})
				must(err)
			}
		}
		collect(settled(ctx, t, c), name+" edited ", all)
		must(c.Delete(ctx, a.Files[0].Data))
	}
	return all
}

func editOf(o *unstructured.Unstructured) (*kinds.Kind, func(map[string]any)) {
	for kind, edit := range edits {
		if kind.Name == o.GetKind() {
			return kind, edit
		}
	}
	return nil, nil
}

func resource(k *kinds.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
}

// list returns the objects of the Gateway API, by kind and name.
func list(ctx context.Context, t *testing.T, c *cluster.Cluster) (all []*unstructured.Unstructured) {
	t.Helper()
	for kind := range edits {
		got, err := c.Dynamic().Resource(resource(kind)).List(ctx, metav1.ListOptions{})
		must.Succeed(t, err)
		for i := range got.Items {
			all = append(all, &got.Items[i])
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return all
}

func nameOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// settled waits until the statuses have been the same for a while, and returns the objects.
func settled(ctx context.Context, t *testing.T, c *cluster.Cluster) []*unstructured.Unstructured {
	t.Helper()
	const still = 3 * time.Second
	statuses := func() (objects []*unstructured.Unstructured, all map[string]any) {
		all = map[string]any{}
		objects = list(ctx, t, c)
		for _, o := range objects {
			all[nameOf(o)] = o.Object["status"]
		}
		return objects, all
	}
	objects, last := statuses()
	for since := time.Now(); time.Since(since) < still; time.Sleep(200 * time.Millisecond) {
		var now map[string]any
		if objects, now = statuses(); !reflect.DeepEqual(now, last) {
			since, last = time.Now(), now
		}
	}
	return objects
}

// collect finds the observedGeneration of each condition that a control plane wrote.
func collect(objects []*unstructured.Unstructured, at string, into map[string]int64) {
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if generation, is := v["observedGeneration"].(int64); is {
				into[fmt.Sprintf("%s %v", path, v["type"])] = generation
				return
			}
			for key, child := range v {
				walk(path+"."+key, child)
			}
		case []any:
			for i, child := range v {
				id := fmt.Sprint(i)
				if m, is := child.(map[string]any); is {
					for _, key := range []string{"name", "parentRef", "ancestorRef"} {
						if m[key] != nil {
							id = fmt.Sprint(m[key], m["controllerName"])
						}
					}
				}
				walk(path+"["+id+"]", child)
			}
		}
	}
	for _, o := range objects {
		walk(at+nameOf(o), o.Object["status"])
	}
}
