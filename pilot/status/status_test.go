package status

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func describe(code string) Code {
	return Code{ID: code, Name: "Name of " + code, URL: "https://" + code}
}

// An object of the API server that has findings gets a message for each, the worst first, and a summary. Objects of
// files, of other clusters and of other control planes, last good versions and objects that are not Istio's get none.
func TestWant(t *testing.T) {
	route := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "v"}
	objects := map[kinds.Key]*kinds.Object{
		route: {Key: route},
		{Kind: kinds.DestinationRule, Namespace: "a", Name: "filed"}:   {Position: "x.yaml:1:1"},
		{Kind: kinds.DestinationRule, Namespace: "a", Name: "relayed"}: {Relayed: true},
		{Kind: kinds.KubeGateway, Namespace: "a", Name: "kube"}:        {},
		{Kind: kinds.KubeGateway, Namespace: "a", Name: "both"}:        {},
		{Kind: kinds.Gateway, Namespace: "a", Name: "both"}:            {},
	}
	got := want([]diag.Diagnostic{
		{Severity: diag.Info, Code: "IST0118", Object: "VirtualService a/v", Message: "advice"},
		{Severity: diag.Error, Code: "IST0101", Object: "VirtualService a/v", Field: "spec.hosts[0]", Message: "no host", Fix: "add it"},
		{Severity: diag.Error, Object: "DestinationRule a/filed"}, {Severity: diag.Error, Object: "DestinationRule a/relayed"},
		{Severity: diag.Error, Object: "VirtualService a/v", File: "x.yaml"},
		{Severity: diag.Error, Object: kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "p" + kinds.LastGood}.String()},
		{Severity: diag.Error, Object: "VirtualService a/v of cluster far"}, {Severity: diag.Error, Object: "Service a/s"},
		{Severity: diag.Warning, Code: codeNotWritten, Object: "VirtualService a/v"},
		{Severity: diag.Error, Object: "Gateway a/kube"}, {Severity: diag.Error, Object: "Gateway a/both"},
		{Severity: diag.Error, Object: "MeshConfig"}, {Severity: diag.Error},
	}, func(k kinds.Key) *kinds.Object { return objects[k] }, describe)
	wanted := map[kinds.Key]wanted{route: {
		object: objects[route], summary: "1 error, 0 warnings, 1 info: spec.hosts[0]: no host; add it\nadvice",
		messages: []any{
			map[string]any{
				"level": "ERROR", "type": map[string]any{"code": "IST0101", "name": "Name of IST0101"}, "documentationUrl": "https://IST0101",
			},
			map[string]any{
				"level": "INFO", "type": map[string]any{"code": "IST0118", "name": "Name of IST0118"}, "documentationUrl": "https://IST0118",
			},
		},
	}}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %v\nwant %v", got, wanted)
	}
}

// A summary has a line for each finding, of bounded length, and the number of those that do not fit.
func TestTexts(t *testing.T) {
	var list []diag.Diagnostic
	for i := range 10 {
		list = append(list, diag.Diagnostic{Object: "VirtualService a/v", Message: fmt.Sprint(i) + strings.Repeat("x", 2000)})
	}
	lines := strings.Split(texts(list), "\n")
	if len(lines) != 4 || lines[3] != "and 7 more" || len(lines[0]) > 1030 || lines[2][0] != '2' {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	if got := texts(list[:1]); strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

// A status is written where it does not say what is wanted, and not again when it does. What others wrote stays, and
// the time of the condition changes with its status alone.
func TestPatch(t *testing.T) {
	bad := wanted{summary: "bad", messages: []any{map[string]any{"level": "ERROR"}}}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generation": int64(3)},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Other", "status": "True"}}, "mine": "x"},
	}}
	if patch(u, wanted{}, time.Time{}, false) != nil {
		t.Error("an object without findings, and without messages, is written")
	}
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	take := func(parts map[string]any) {
		t.Helper()
		if parts == nil {
			t.Fatal("nothing is written")
		}
		status := u.Object["status"].(map[string]any)
		for name, v := range parts { // as a merge patch does
			status[name] = v
		}
		if status["mine"] != "x" || len(status["conditions"].([]any)) != 2 ||
			status["conditions"].([]any)[0].(map[string]any)["type"] != "Other" {
			t.Fatalf("what others wrote is gone: %v", status)
		}
	}
	take(patch(u, bad, first, false))
	if c := conditionOf(u.Object["status"].(map[string]any), passed); c["status"] != "False" || c["message"] != "bad" ||
		c["lastTransitionTime"] != "1970-01-01T00:16:40Z" {
		t.Errorf("%v", c)
	}
	if parts := patch(u, bad, second, false); parts != nil {
		t.Errorf("written again: %v", parts)
	}
	u.Object["status"].(map[string]any)[generation] = "3" // as some API servers have it
	if parts := patch(u, bad, second, false); parts != nil {
		t.Errorf("written again for the form of a number: %v", parts)
	}
	u.SetGeneration(4)
	if parts := patch(u, bad, second, true); parts != nil {
		t.Errorf("written for a generation that is not its own: %v", parts)
	}
	if parts := patch(u, wanted{}, second, true); parts == nil || parts[generation] != nil {
		t.Errorf("written with a generation that is not its own: %v", parts)
	}
	take(patch(u, bad, second, false))
	if status := u.Object["status"].(map[string]any); observed(status) != 4 ||
		!strings.Contains(conditionOf(status, passed)["lastTransitionTime"].(string), "00:16:40") {
		t.Errorf("after another generation: %v", status)
	}
	take(patch(u, wanted{}, second, false))
	if status := u.Object["status"].(map[string]any); conditionOf(status, passed)["status"] != "True" || len(list(status, messages)) != 0 ||
		conditionOf(status, passed)["lastTransitionTime"] != "1970-01-01T00:33:20Z" {
		t.Errorf("when nothing is wrong: %v", status)
	}
	if parts := patch(u, wanted{}, second, false); parts != nil {
		t.Errorf("written again when nothing is wrong: %v", parts)
	}
}
