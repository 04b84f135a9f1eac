package translate_test

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestPatchesLeaveOthersAlone: an EnvoyFilter for one workload patches what it matches and shares all else, down to the
// pointer, with the proxies that it does not select. Those keep their cohort, and so their Sets. An edit of an
// EnvoyFilter makes what its patches match again, and nothing else.
func TestPatchesLeaveOthersAlone(t *testing.T) {
	const services = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: api, namespace: a}, spec: {selector: {app: api}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: a, labels: {app: web}}, spec: {}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: api-0, namespace: a, labels: {app: api}}, spec: {}, status: {phase: Running, podIP: 10.0.0.2}}
`
	const filter = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: x, namespace: a}
spec:
  workloadSelector: {labels: {app: web}}
  configPatches:
  - {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: web.a.svc.cluster.local}},
      patch: {operation: MERGE, value: {alt_stat_name: first}}}
  - {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: api.a.svc.cluster.local}},
      patch: {operation: MERGE, value: {alt_stat_name: second}}}
  - applyTo: VIRTUAL_HOST
    match: {routeConfiguration: {vhost: {name: "api.a.svc.cluster.local:80"}}}
    patch: {operation: MERGE, value: {request_headers_to_remove: [x]}}
  - applyTo: EXTENSION_CONFIG
    patch: {operation: ADD, value: {name: ext, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}
`
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	web := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
	api := proxy(t, []byte(`{"id": "sidecar~10.0.0.2~api-0.a~a.svc.cluster.local"}`))
	before := w.apply(objects(t, "services.yaml", []byte(services))...)
	plain, other := tr.ResolveCohort(before, web), tr.ResolveCohort(before, api)
	if !plain.Patches.None() {
		t.Fatal("patches without an EnvoyFilter")
	}
	clusters, listeners := tr.Wildcard(before, plain, envoy.ClusterType), tr.Wildcard(before, plain, envoy.ListenerType)
	routes := tr.Resource(before, plain, envoy.RouteType, "80")

	after := w.apply(objects(t, "filter.yaml", []byte(filter))...)
	k := tr.ResolveCohort(after, web)
	if got := tr.ResolveCohort(after, api); got != other || k.Client != plain.Client || k.Listeners != plain.Listeners ||
		k.Inbound != plain.Inbound {
		t.Error("a cohort differs beyond the patches")
	}
	if tr.Wildcard(after, other, envoy.ClusterType).Shared != tr.Wildcard(before, other, envoy.ClusterType).Shared {
		t.Error("a proxy that is not selected has another Set")
	}
	differs := func(from, to envoy.Union) string {
		var names []string
		for r := range to.All {
			if from.Get(r.Name) != r {
				names = append(names, r.Name)
			}
		}
		return strings.Join(names, " ")
	}
	const first, second = "outbound|80||web.a.svc.cluster.local", "outbound|80||api.a.svc.cluster.local"
	patched := tr.Wildcard(after, k, envoy.ClusterType)
	if got := differs(clusters, patched); got != second+" "+first {
		t.Errorf("clusters %s are patched", got)
	}
	if got := differs(listeners, tr.Wildcard(after, k, envoy.ListenerType)); got != "" {
		t.Errorf("listeners %s are patched", got)
	}
	own := tr.Resource(after, k, envoy.RouteType, "80")
	if got := differs(envoy.Union{Shared: routes.Hosts}, envoy.Union{Shared: own.Hosts}); got != "80/api.a.svc.cluster.local:80" ||
		own.Header != routes.Header {
		t.Errorf("virtual hosts %s are patched", got)
	}
	if r := tr.Resource(after, k, envoy.ExtensionType, "ext"); r == nil ||
		tr.Resource(after, other, envoy.ExtensionType, "ext") != nil || tr.Resource(after, k, envoy.ExtensionType, "none") != nil {
		t.Error("extensions are added wrongly")
	}

	built := func(s *snapshot.Snapshot, p *node.Proxy) uint64 {
		_, had := tr.Stats()
		k := tr.ResolveCohort(s, p)
		tr.Wildcard(s, k, envoy.ClusterType)
		tr.Wildcard(s, k, envoy.ListenerType)
		tr.Resource(s, k, envoy.RouteType, "80")
		_, has := tr.Stats()
		return has - had
	}
	built(after, api)
	built(after, web)
	edited := w.apply(objects(t, "filter.yaml", []byte(strings.Replace(filter, "second", "third", 1)))...)
	if n := built(edited, api); n != 0 {
		t.Errorf("%d resources are built for a proxy that is not selected", n)
	}
	if n := built(edited, web); n < 3 || n > 6 { // two clusters, a virtual host, its route configuration
		t.Errorf("%d resources are built for three that are patched", n)
	}
	if got := differs(patched, tr.Wildcard(edited, tr.ResolveCohort(edited, web), envoy.ClusterType)); got != second+" "+first {
		t.Errorf("clusters %s are made again", got) // both: a patch is known by its object
	}
	gone := w.apply(kinds.Change{Key: kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "a", Name: "x"}})
	if c := tr.ResolveCohort(gone, web); c.Patches != (cohort.Key{}).Patches ||
		differs(clusters, tr.Wildcard(gone, c, envoy.ClusterType)) != "" {
		t.Error("patches stay when their object goes")
	}
}

// TestPatchedHeadHasVersionOfHead: a patched route configuration without virtual hosts has a version that says so. A
// server that its client resumes at knows by the version that the client has no virtual hosts in it.
func TestPatchedHeadHasVersionOfHead(t *testing.T) {
	const world = `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: x, namespace: a}
spec:
  configPatches:
  - {applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {request_headers_to_remove: [x]}}}
`
	w, tr := newWorld(t, mesh.Default()), newTranslator(0)
	s := w.apply(objects(t, "world.yaml", []byte(world))...)
	p := proxy(t, []byte(`{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local"}`))
	p.Capabilities = node.VHDS
	r := tr.Resource(s, tr.ResolveCohort(s, p), envoy.RouteType, "80")
	if r.Head == nil || !strings.Contains(string(r.Head.Bytes()), "x") || len(r.Head.Notes) == 0 {
		t.Fatalf("the route configuration is not divided, or not patched: %+v", r.Head)
	}
	if !r.Head.Divided || !envoy.IsHeadVersion(r.Head.Version) || envoy.IsHeadVersion(r.Header.Version) {
		t.Errorf("versions %s of the head and %s of the whole", r.Head.Version, r.Header.Version)
	}
}
