package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestNameTable compares the names that DNS proxies answer for with those that the real istiod sent for the same mesh.
// What differs: istiod sends addresses of a family that a proxy does not have, and orders none; it has a name for a pod
// that is not ready where another service of any name publishes it; and it allots other addresses.
func TestNameTable(t *testing.T) {
	const (
		shared = `
10.3.0.1,10.3.0.2 Kubernetes sts a: sts.a.svc.cluster.local
10.3.0.1 Kubernetes sts-0.sts a: sts-0.sts.a.svc.cluster.local
10.3.0.2 Kubernetes sts-1.sts a: sts-1.sts.a.svc.cluster.local
10.3.0.3 Kubernetes publish a: publish.a.svc.cluster.local
10.64.0.12 Kubernetes api a: api.a.svc.cluster.local
10.9.0.1,10.9.0.2 External: addr.example.com
10.9.0.1,10.9.0.2 External: addr2.example.com
10.9.5.5 External: cidr2.example.com
10.9.7.7 External: short`
		auto    = "\nallotted External: auto.example.com"
		others  = "\nallotted External: autodns.example.com"
		private = "\n10.9.8.8 External: private.example.com"
	)
	apart := `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: a}
spec: {egress: [{hosts: [a/*, b/private.example.com]}]}`
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	var s *snapshot.Snapshot
	table := func(id, metadata string) string {
		p := proxy(t, []byte(`{"id": "`+id+`", "metadata": {"CLUSTER_ID": "Kubernetes", `+metadata+`}}`))
		var all []*envoy.Resource
		for r := range tr.Wildcard(s, tr.ResolveCohort(s, p), envoy.NameTableType).All {
			all = append(all, r)
		}
		if len(all) != 1 || all[0].Name != "" || !strings.Contains(string(all[0].Bytes()), envoy.NameTableType) {
			t.Fatalf("%d resources: %v", len(all), all)
		}
		return nameTable(all[0].Value())
	}
	const inA, inB = "sidecar~10.1.0.11~web-0.a~a.svc.cluster.local", "sidecar~10.1.0.12~web-0.b~b.svc.cluster.local"
	s = w.apply(objects(t, "names.yaml", read(t, "testdata", "names.yaml"))...)
	tr.Prepare(s)
	check := func(what, got string, want ...string) {
		t.Helper()
		if want := sortedLines(strings.Join(want, "")); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
		}
	}
	check("without auto-allocated addresses", table(inA, `"NAMESPACE": "a"`), shared)
	check("with them", table(inA, `"NAMESPACE": "a", "DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true"`), shared, auto, others)
	check("what is exported to the own namespace", table(inB, `"NAMESPACE": "b"`), shared, private,
		"\n10.64.3.3 Kubernetes private b: private.b.svc.cluster.local")
	check("a gateway", table("router~10.1.0.13~gw-0.a~a.svc.cluster.local", `"NAMESPACE": "a"`))
	s = w.apply(objects(t, "sidecar.yaml", []byte(apart))...)
	tr.Prepare(s)
	check("what a Sidecar imports", table(inA, `"NAMESPACE": "a", "DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true"`), shared, auto)
}

// nameTable returns an encoded NameTable as sorted lines: addresses, registry, short name, namespace and name. Of two
// entries for one name the last counts.
func nameTable(b []byte) string {
	names := map[string]string{}
	for _, entry := range messages(b)[1] {
		pair := messages(entry)
		info := messages(pair[2][0])
		addresses := joined(info[1])
		if strings.HasPrefix(addresses, "240.240.") {
			addresses = "allotted"
		}
		line := strings.Join(slices.Concat([]string{addresses}, texts(info[2]), texts(info[3]), texts(info[4])), " ")
		names[string(pair[1][0])] = line
	}
	var lines []string
	for name, line := range names {
		lines = append(lines, line+": "+name)
	}
	return sortedLines(strings.Join(lines, "\n"))
}

func sortedLines(text string) string {
	lines := strings.Fields(strings.ReplaceAll(strings.TrimSpace(text), " ", "_"))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func joined(list [][]byte) string { return strings.Join(texts(list), ",") }

func texts(list [][]byte) (out []string) {
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

// messages returns the fields of a message by number; all have a length.
func messages(b []byte) map[protowire.Number][][]byte {
	out := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if kind != protowire.BytesType {
			panic(fmt.Sprint("field ", number, " has no length"))
		}
		v, size := protowire.ConsumeBytes(b[n:])
		out[number] = append(out[number], v)
		b = b[n+size:]
	}
	return out
}

// TestNamesOfTheOtherFamily: a ServiceEntry whose addresses are all of the family that a proxy does not have is in the
// table, as in istiod, so that the name exists. Where it has both families, the proxy gets its own.
func TestNamesOfTheOtherFamily(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(0)
	s := w.apply(objects(t, "names.yaml", []byte(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: v6, namespace: a}
spec: {hosts: [v6.example.com], addresses: ["2001:db8::1"], ports: [{number: 80, name: http}], resolution: STATIC}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: both, namespace: a}
spec: {hosts: [both.example.com], addresses: ["2001:db8::2", 10.9.9.9], ports: [{number: 80, name: http}], resolution: STATIC}
`))...)
	got := ""
	for r := range tr.Wildcard(s, tr.ResolveCohort(s, proxy(t, []byte(`{"id": "sidecar~10.0.0.1~x.a~a.svc.cluster.local"}`))),
		envoy.NameTableType).All {
		got += nameTable(r.Value())
	}
	if want := sortedLines("\n2001:db8::1 External: v6.example.com\n10.9.9.9 External: both.example.com"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
