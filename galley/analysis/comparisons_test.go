package analysis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestComparisonsAreBounded: a VirtualService whose hosts, Gateways, namespaces and matches multiply is compared in
// part, and says so. Others are compared as ever.
func TestComparisonsAreBounded(t *testing.T) {
	list := func(format string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	const route = "route: [{destination: {host: s}}]"
	objects := decode(t, fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: VirtualService,
  metadata: {name: b-exported, namespace: a}, spec: {hosts: %s, gateways: %s, exportTo: %s, http: [{%[6]s}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: c-matched, namespace: a},
  spec: {hosts: %[1]s, gateways: %[2]s, tcp: [{match: %[4]s, %[6]s}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: d-sidecars, namespace: a},
  spec: {hosts: %[5]s, tcp: [{match: %[4]s, %[6]s}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a-small, namespace: a},
  spec: {hosts: [x.test], gateways: [gw], http: [{%[6]s}], tcp: [{%[6]s}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: e-small, namespace: a},
  spec: {hosts: [x.test], gateways: [gw], http: [{%[6]s}], tcp: [{%[6]s}]}}
`, list("h%d.test", 60), list("g%d", 60), list("n%d", 60), list("{port: %d}", 300), list("h%d.test", 70), route))
	var got []string
	for _, d := range run(objects) {
		if d.Code == codeLimit || d.Code == codeUnreachable {
			got = append(got, d.Object+" "+d.Code)
		}
	}
	slices.Sort(got)
	want := []string{
		"VirtualService a/b-exported Limit", "VirtualService a/c-matched Limit", "VirtualService a/d-sidecars Limit",
		"VirtualService a/e-small UnreachableRoutes", "VirtualService a/e-small UnreachableRoutes",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMorePortsThanAreListed: of two ServiceEntries of one host whose ports differ in many protocols a few are named.
func TestMorePortsThanAreListed(t *testing.T) {
	entry := func(name, protocol string) string {
		var ports []string
		for i := range 30 {
			ports = append(ports, fmt.Sprintf("{number: %d, name: p%[1]d, protocol: %s}", i+1, protocol))
		}
		return "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: " + name +
			", namespace: a}, spec: {hosts: [x.test], resolution: DNS, ports: [" + strings.Join(ports, ", ") + "]}}\n"
	}
	found := ""
	for _, d := range run(decode(t, entry("one", "HTTP")+"---\n"+entry("two", "TCP"))) {
		if d.Code == codeHost {
			found += d.Object + ": " + d.Message + "\n"
		}
	}
	if !strings.HasPrefix(found, "ServiceEntry a/two: ") ||
		!strings.Contains(found, "port 8 is HTTP, 22 more ports have another protocol") || strings.Contains(found, "port 9 ") {
		t.Error(found)
	}
}
