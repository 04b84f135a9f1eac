package virtualservice

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

var update = flag.Bool("update", false, "write the goldens anew")

// proxy is the head of a golden: the proxy, its port, and which destinations exist.
type proxy struct {
	Port      uint32
	Gateway   string
	Namespace string
	Labels    map[string]string
	Ports     map[string]uint32 // of destinations that do not say theirs
	Missing   []string          // hosts that do not exist
	Hash      []string          // hosts whose rule hashes by the header x-user
	Retries   json.RawMessage   // the mesh's defaultHttpRetryPolicy
}

func (p proxy) options(t *testing.T, o *kinds.Object) Options {
	t.Helper()
	if p.Gateway == "" {
		p.Gateway = Mesh
	}
	opts := Options{Object: o, Port: p.Port, Gateway: p.Gateway, Namespace: p.Namespace, Suffix: "cluster.local"}
	if p.Retries != nil {
		opts.Retries = &networkingv1alpha3.HTTPRetry{}
		if err := json.Unmarshal(p.Retries, opts.Retries); err != nil {
			t.Fatal(err)
		}
	}
	opts.SourceMatches = func(m *networkingv1alpha3.HTTPMatchRequest) bool {
		for k, v := range m.SourceLabels {
			if p.Labels[k] != v {
				return false
			}
		}
		return true
	}
	opts.Cluster = func(host, subset string, port uint32) string {
		for _, m := range p.Missing {
			if m == host {
				return names.UnknownService
			}
		}
		if port == 0 {
			port = p.Ports[host]
		}
		if port == 0 {
			port = p.Port
		}
		return names.Cluster(names.Outbound, port, subset, host)
	}
	opts.Hash = func(c names.ClusterName) []*routev3.RouteAction_HashPolicy {
		for _, h := range p.Hash {
			if h == c.Host {
				return []*routev3.RouteAction_HashPolicy{{PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: "x-user"}}}}
			}
		}
		return nil
	}
	return opts
}

func object(t *testing.T, doc []byte) *kinds.Object {
	t.Helper()
	var d struct {
		Metadata struct{ Name, Namespace string }
		Spec     json.RawMessage
	}
	if err := yaml.UnmarshalStrict(doc, &d); err != nil {
		t.Fatal(err)
	}
	spec := &networkingv1.VirtualService{}
	if err := json.Unmarshal(d.Spec, spec); err != nil {
		t.Fatal(err)
	}
	return &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: d.Metadata.Namespace, Name: d.Metadata.Name}, Spec: spec}
}

// text returns a stable form: protojson's own varies in white space.
func text(t *testing.T, routes []*routev3.Route) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, r := range routes {
		b, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&out, b, "", " "); err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// TestGoldens: each golden holds the VirtualServices, the first of them the root, and for each proxy (name.yaml) the
// routes (name.json).
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var all []*kinds.Object
			got := &txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				switch {
				case f.Name == "input.yaml":
					for doc := range bytes.SplitSeq(f.Data, []byte("\n---\n")) {
						all = append(all, object(t, doc))
					}
					got.Files = append(got.Files, f)
				case strings.HasSuffix(f.Name, ".yaml"):
					got.Files = append(got.Files, f, txtar.File{Name: strings.TrimSuffix(f.Name, ".yaml") + ".json", Data: golden(t, f.Data, all)})
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(got))); d != "" {
				t.Error(d)
			}
		})
	}
}

func golden(t *testing.T, head []byte, all []*kinds.Object) []byte {
	t.Helper()
	var p proxy
	if err := yaml.UnmarshalStrict(head, &p); err != nil {
		t.Fatal(err)
	}
	before := make([]proto.Message, len(all))
	for i, o := range all {
		before[i] = proto.Clone(o.Spec.(proto.Message))
	}
	routes := func() []*routev3.Route {
		root := scope.ResolveDelegates(all[0], "cluster.local", math.MaxInt, func(namespace, name string) *kinds.Object {
			for _, o := range all {
				if o.Namespace == namespace && o.Name == name {
					return o
				}
			}
			return nil
		})
		return HTTPRoutes(p.options(t, root))
	}
	first := routes()
	for range 5 {
		if again := routes(); !bytes.Equal(encode(again), encode(first)) {
			t.Error("the same input gives other bytes")
		}
	}
	for _, r := range first {
		if err := r.ValidateAll(); err != nil {
			t.Errorf("Envoy would reject it: %v", err)
		}
	}
	for i, o := range all {
		if !proto.Equal(before[i], o.Spec.(proto.Message)) {
			t.Errorf("%s was changed", o.Key)
		}
	}
	return text(t, first)
}

func encode(routes []*routev3.Route) []byte {
	return envoy.NewResource("", &routev3.VirtualHost{Routes: routes}).Body
}
