package validation

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
)

// TestSize: an object that reaches a limit is used; one that exceeds it is not, and the finding names the field and the
// limit, wherever the object comes from.
func TestSize(t *testing.T) {
	l := limits.Default()
	l.ListEntries, l.RepeatedText, l.EntryClusters, l.EntryEndpoints = 20, 4000, 12, 24
	list := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	vs := func(hosts, routes int) string {
		return fmt.Sprintf("{hosts: %s, http: %s}", list(hosts, "h%d.com"),
			list(routes, "{match: [{uri: {exact: /%d}}], route: [{destination: {host: a.com}}]}"))
	}
	dr := func(subsets, ports int) string {
		return fmt.Sprintf("{host: a.com, subsets: %s, trafficPolicy: {portLevelSettings: %s}}",
			list(subsets, "{name: s%d, labels: {a: b}}"), list(ports, "{port: {number: 1%02d}, loadBalancer: {simple: RANDOM}}"))
	}
	se := func(hosts, ports, endpoints int) string {
		return fmt.Sprintf("{hosts: %s, ports: %s, endpoints: %s, resolution: STATIC, location: MESH_INTERNAL}", list(hosts, "h%d.com"),
			list(ports, "{name: p%[1]d, number: 1%02[1]d, protocol: HTTP}"), list(endpoints, "{address: 10.0.0.%d}"))
	}
	for _, c := range []struct {
		kind *kinds.Kind
		spec string
		want string // the field and the limit; empty: it is used
	}{
		{kinds.VirtualService, vs(20, 1), ""},
		{kinds.VirtualService, vs(1, 20), ""},
		{kinds.VirtualService, vs(21, 1), "spec.hosts: 20"},
		{kinds.VirtualService, vs(1, 21), "spec.http: 20"},
		{kinds.VirtualService, vs(20, 20), "spec.hosts: 4000"},
		{kinds.VirtualService,
			fmt.Sprintf("{hosts: [a.com], http: [{match: [{uri: {exact: /}, gateways: %s}], route: [{destination: {host: a.com}}]}]}",
				list(21, "a/g%d")), "spec.http[0].match[0].gateways: 20"},
		{kinds.VirtualService, fmt.Sprintf("{hosts: %[1]s, tls: [{match: [{sniHosts: %[1]s}], route: [{destination: {host: a.com}}]}]}",
			list(20, strings.Repeat("a", 40)+"%d.com")), ""},
		{kinds.DestinationRule, dr(20, 1), ""},
		{kinds.DestinationRule, dr(21, 1), "spec.subsets: 20"},
		{kinds.DestinationRule, dr(20, 20), "spec.subsets: 4000"},
		{kinds.ServiceEntry, se(2, 3, 4), ""},
		{kinds.ServiceEntry, se(3, 3, 3), "spec: 24"},
		{kinds.ServiceEntry, se(4, 3, 1), ""},
		{kinds.ServiceEntry, se(5, 3, 1), "spec: 12"},
		{kinds.ServiceEntry, "{hosts: " + list(13, "h%d.com") + ", ports: [{name: p, number: 80, protocol: HTTP}], resolution: DNS}", "spec: 12"},
		{kinds.Gateway, "{servers: [{hosts: " + list(21, "h%d.com") + ", port: {number: 80, name: a, protocol: HTTP}}]}",
			"spec.servers[0].hosts: 20"},
		{kinds.Sidecar, "{egress: [{hosts: " + list(21, "a/h%d.com") + "}]}", "spec.egress[0].hosts: 20"},
		{kinds.Service, "{ports: " + list(21, "{name: p%[1]d, port: 1%02[1]d}") + "}", "spec.ports: 20"},
		{kinds.AuthorizationPolicy, "{rules: [{from: [{source: {ipBlocks: " + list(21, "10.0.0.%d") + "}}]}]}", ""},
	} {
		text := document(c.kind, "spec: "+c.spec+"\n")
		for from, doc := range map[string]Document{"a file": Decode(l, "f.yaml", []byte(text)).Documents[0],
			"an API server": Object(l, c.kind, stored(t, text))} {
			got := ""
			for _, f := range doc.Findings {
				if f.Code == "Limit" {
					got += f.Field + ": " + strings.TrimSuffix(f.Message[strings.LastIndex(f.Message, " more than ")+len(" more than "):], " bytes")
				}
			}
			if got != c.want || (doc.Object == nil) != (c.want != "") {
				t.Errorf("%s of %d bytes from %s: %q, want %q; %v", c.kind.Name, len(c.spec), from, got, c.want, doc.Findings)
			}
		}
	}
}

// TestNodesOfFiles checks that a file whose documents make too many nodes is refused before it is parsed, in little
// memory. A parser would take more than a gigabyte for each file.
func TestNodesOfFiles(t *testing.T) {
	histories.NoRace(t)
	for name, shape := range map[string]string{
		"anchors": "- &a x\n", "aliases": "- *a\n", "merge keys": "- {<<: *a}\n", "empty maps": "- {}\n", "tags": "- !!str a\n",
		"deep flow maps": "{a: ", "block scalars": "- |\n x\n", "flow lists": "[],", "names": "a,",
		"documents": "---\na: b\nc: {d, e, f, g, h, i, j, k}\n", "keys": "? a\n",
	} {
		text := []byte("a: &a {}\nb:\n" + strings.Repeat(shape, 16<<20/len(shape)-4))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := Decode(limits.Default(), "f.yaml", text)
		runtime.ReadMemStats(&after)
		if r.Broken == nil || r.Broken.Code != "Limit" {
			t.Errorf("%s: %v", name, r.Broken)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: it took %d bytes to refuse %d", name, took, len(text))
		}
	}
	text := "items:\n" + strings.Repeat("- {a: b, c: d}\n", 20_000)
	if r := Decode(limits.Default(), "f.yaml", []byte(text)); r.Broken != nil {
		t.Errorf("a file of %d bytes is refused: %v", len(text), r.Broken)
	}
}
