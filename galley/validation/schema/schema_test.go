package schema

import (
	"strings"
	"sync"
	"testing"

	runtime "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func parse(t *testing.T, text string) map[string]any {
	object := map[string]any{}
	must.Succeed(t, yaml.Unmarshal([]byte(text), &object))
	return object
}

// Every version of every kind that is no part of Kubernetes has a definition that compiles.
func TestEveryKindHasADefinition(t *testing.T) {
	for _, k := range kinds.All() {
		for _, v := range k.Versions {
			d, err := compile(runtime.GroupVersionKind{Group: k.Group, Version: v, Kind: k.Name})
			if err != nil {
				t.Errorf("%s of %s: %v", k.Name, v, err)
			}
			custom := k.Istio || strings.HasPrefix(k.Group, "gateway.") || k.IsMultiCluster()
			if (d != nil) != custom {
				t.Errorf("%s of %s has a definition: %v, want %v", k.Name, v, d != nil, custom)
			}
		}
	}
}

// What a type, an enum, a length, a required field, a list's key or a rule forbids is found, with its field.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"networking.istio.io/v1/DestinationRule", "spec: {host: a, trafficPolicy: {loadBalancer: {simple: RANDOM}}}", ""},
		{"networking.istio.io/v1/DestinationRule", "spec: {host: 5}", "spec.host: Invalid value"},
		{"networking.istio.io/v1/DestinationRule", "spec: {}", "spec.host: Required value"},
		{"networking.istio.io/v1/DestinationRule", "spec: {host: a, trafficPolicy: {loadBalancer: {simple: SOME}}}",
			"spec.trafficPolicy.loadBalancer.simple: Unsupported value"},
		{"networking.istio.io/v1/DestinationRule",
			"spec: {host: a, trafficPolicy: {loadBalancer: {simple: RANDOM, consistentHash: {useSourceIp: true}}}}",
			"spec.trafficPolicy.loadBalancer: Invalid value: \"\": must validate one and only one schema"},
		{"security.istio.io/v1beta1/AuthorizationPolicy", "spec: {selector: {matchLabels: {a: b}}, targetRef: {kind: Gateway, name: a}}",
			"spec: Invalid value: only one of targetRefs or selector can be set"},
		{"networking.istio.io/v1/VirtualService",
			"spec: {hosts: [a], http: [{timeout: 1us, route: [{destination: {host: a}}]}]}", "spec.http[0].timeout: Invalid value"},
		{"gateway.networking.k8s.io/v1/HTTPRoute", "spec: {parentRefs: [{name: a}, {name: a}]}", "sectionName must be unique"},
		{"gateway.networking.k8s.io/v1/Gateway", "spec: {gatewayClassName: a, " +
			"listeners: [{name: a, port: 80, protocol: HTTP}, {name: a, port: 81, protocol: HTTP}]}", "spec.listeners[1]: Duplicate value"},
		{"gateway.networking.k8s.io/v1/HTTPRoute", "spec: {rules: [{filters: [{type: CORS, cors: {maxAge: 2147483648}}]}]}",
			"spec.rules[0].filters[0].cors.maxAge: "},
		{"v1/Service", "spec: 5", ""},
	} {
		gvk := runtime.FromAPIVersionAndKind(c.kind[:strings.LastIndex(c.kind, "/")], c.kind[strings.LastIndex(c.kind, "/")+1:])
		errs, err := new(Set).Check(gvk, parse(t, c.text))
		must.Succeed(t, err)
		if got := errs.ToAggregate(); (c.want == "") != (got == nil) || got != nil && !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.kind, c.text, got, c.want)
		}
	}
}

// A Set may be used and emptied from many goroutines at once.
func TestSetIsShared(t *testing.T) {
	s := &Set{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				errs, err := s.Check(runtime.GroupVersionKind{Group: "security.istio.io", Version: "v1", Kind: "PeerAuthentication"},
					map[string]any{"spec": map[string]any{"mtls": map[string]any{"mode": "SOME"}}})
				if err != nil || len(errs) != 1 {
					t.Errorf("%v, %v", errs, err)
				}
				s.Forget()
			}
		})
	}
	wg.Wait()
}
