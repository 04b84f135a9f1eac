package bootstrap

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/config/mcp"
)

// everyKind has an object of each Istio kind. None of the first three changes what a proxy is sent.
const everyKind = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: wg, namespace: a, labels: {x: "1", z: "2"}, annotations: {note: hello}, creationTimestamp: "2024-01-02T03:04:05Z"}
spec: {template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: we, namespace: a}
spec: {address: 10.0.0.7, labels: {app: vm}}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: pc, namespace: a}
spec: {concurrency: 0, environmentVariables: {B: "2", A: "1"}}
---
apiVersion: networking.istio.io/v1alpha3
kind: ServiceEntry
metadata: {name: se, namespace: a, creationTimestamp: "2020-01-02T03:04:05Z"}
spec: {hosts: [ext.example], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: b}
spec: {egress: [{hosts: ["./*"]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: dr, namespace: a}
spec: {host: web, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1.5s}}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: a}
spec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs, namespace: a}
spec: {hosts: [web], http: [{match: [{uri: {exact: /é}}], route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: ef, namespace: a}
spec: {configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {b: 1, a: {c: [x, null]}}}}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: pa, namespace: a}
spec: {mtls: {mode: PERMISSIVE}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ap, namespace: a}
spec: {rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: ra, namespace: a}
spec: {selector: {matchLabels: {app: other}}, jwtRules: [{issuer: me, jwks: '{"keys":[]}'}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: a}
spec: {accessLogging: [{providers: [{name: envoy}]}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: wp, namespace: a}
spec: {url: "oci://registry.example/plugin", pluginConfig: {b: 1, a: 2}, selector: {matchLabels: {app: other}}}
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: te, namespace: a}
spec: {selector: {matchLabels: {app: other}}, wasm: {url: "oci://registry.example/plugin"}}
`

// collected is what a source has handed on.
type collected struct {
	mu      sync.Mutex
	objects map[kinds.Key]*kinds.Object
}

func (c *collected) handle(changes []kinds.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if !change.Kind.Istio {
			continue
		}
		if c.objects[change.Key] = change.Object; change.Object == nil {
			delete(c.objects, change.Key)
		}
	}
}

func (c *collected) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects)
}

// read is an object without who has it.
func read(o *kinds.Object) *kinds.Object {
	c := *o
	c.Relayed = false
	return &c
}

// differs returns what one has and the other has not, or is not equal in both.
func (c *collected) differs(other *collected) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	for key, o := range c.objects {
		if there := other.objects[key]; there == nil || !config.Equal(read(o), read(there)) {
			return key.String()
		}
	}
	for key := range other.objects {
		if c.objects[key] == nil {
			return key.String()
		}
	}
	return ""
}

// background runs a source until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("source: %v", err)
		}
	})
}

// TestOneServerFeedsAnother: what a server serves as objects is what its directory holds, and stays so.
func TestOneServerFeedsAnother(t *testing.T) {
	o := testOptions(t)
	path := filepath.Join(o.ConfigDir, "all.yaml")
	write(t, path, everyKind)
	s := started(t, o)

	files, fed := &collected{objects: map[kinds.Key]*kinds.Object{}}, &collected{objects: map[kinds.Key]*kinds.Object{}}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	directory, err := file.New(file.Options{Dir: o.ConfigDir, Handler: files.handle, Logger: logger, Poll: o.Poll})
	must.Succeed(t, err)
	source, err := mcp.New(mcp.Options{Address: mcp.Scheme + s.Addresses().GRPC, Handler: fed.handle, Logger: logger})
	must.Succeed(t, err)
	background(t, directory.Run)
	background(t, source.Run)
	eventually(t, "both have synced", func() bool { return directory.HasSynced() && source.HasSynced() })
	if got := files.differs(fed); got != "" {
		t.Fatalf("not the same in the directory and at the client: %s\n%v", got, source.Findings())
	}
	if n := len(slices.DeleteFunc(kinds.All(), func(k *kinds.Kind) bool { return !k.Istio })); fed.len() != n {
		t.Fatalf("%d objects of %d kinds", fed.len(), n)
	}

	documents := strings.Split(everyKind, "---\n")
	replace := func(old, with string) {
		for i := range documents {
			documents[i] = strings.Replace(documents[i], old, with, 1)
		}
	}
	for _, edit := range []struct {
		name string
		do   func()
	}{
		{"an object that concerns no proxy", func() { replace("serviceAccount: web", "serviceAccount: other") }},
		{"an annotation", func() { replace("note: hello", "note: bye") }},
		{"an endpoint", func() { replace("address: 10.0.0.7", "address: 10.0.0.8") }},
		{"a route", func() { replace("hosts: [web], http", "hosts: [web2], http") }},
		{"an object gone that concerns no proxy", func() { documents = documents[1:] }},
		{"an endpoint gone", func() { documents = documents[1:] }},
	} {
		edit.do()
		write(t, path, strings.Join(documents, "---\n"))
		want := &collected{objects: map[kinds.Key]*kinds.Object{}}
		want.handle(readOnce(t, o.ConfigDir))
		eventually(t, edit.name, func() bool { return want.differs(fed) == "" })
	}
	if len(source.Findings()) != 0 {
		t.Errorf("findings %v", source.Findings())
	}
}

// readOnce returns what a directory holds.
func readOnce(t *testing.T, dir string) []kinds.Change {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []kinds.Change
	s, err := file.New(
		file.Options{Dir: dir, NoWatch: true, Poll: time.Hour, Handler: func(changes []kinds.Change) { all = changes; cancel() }})
	must.Succeed(t, err)
	must.Succeed(t, s.Run(ctx))
	return all
}

// reader is the node of a client that wants objects.
func reader() *corev3.Node {
	return &corev3.Node{
		Id:       "sidecar~10.0.0.1~istiod.istio-system~istio-system.svc.cluster.local",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"GENERATOR": structpb.NewStringValue("api")}},
	}
}

// TestObjectsAreNotPublic: they are served to those addresses only that the options name; proxies are served
// everywhere.
func TestObjectsAreNotPublic(t *testing.T) {
	o := testOptions(t)
	o.APIClients = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	s := started(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ads := dial(t, s.Addresses().GRPC)
	sotw, err := ads.StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	must.Succeed(t, sotw.Send(&discoveryv3.DiscoveryRequest{Node: reader(), TypeUrl: "networking.istio.io/v1/VirtualService"}))
	if r, err := sotw.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--apiClients") {
		t.Errorf("state of the world: %v, %v", r, err)
	}
	delta, err := ads.DeltaAggregatedResources(ctx)
	must.Succeed(t, err)
	must.Succeed(t, delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: reader(), TypeUrl: "networking.istio.io/v1/VirtualService"}))
	if r, err := delta.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("delta: %v, %v", r, err)
	}
	if stream := subscribe(t, s.Addresses().GRPC); !clusters(t, stream, "web.a.svc") {
		t.Error("a proxy is not served")
	}
}

// TestObjectsOverDelta: a delta client gets what changes, and the names of what goes.
func TestObjectsOverDelta(t *testing.T) {
	o := testOptions(t)
	path := filepath.Join(o.ConfigDir, "all.yaml")
	write(t, path, everyKind)
	s := started(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	stream, err := dial(t, s.Addresses().GRPC).DeltaAggregatedResources(ctx)
	must.Succeed(t, err)
	ask := func(url string) *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		must.Succeed(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: reader(), TypeUrl: url}))
		r, err := stream.Recv()
		if err != nil || r.TypeUrl != url {
			t.Fatalf("%v, %v", r, err)
		}
		return r
	}
	if r := ask("networking.istio.io/v1/WorkloadEntry"); len(r.Resources) != 1 ||
		r.Resources[0].Name != "a/we" || r.Resources[0].Version == "" {
		t.Errorf("%v", r)
	}
	if r := ask("networking.istio.io/v1/Nonsense"); len(r.Resources) != 0 {
		t.Errorf("%v", r)
	}
	documents := strings.SplitN(everyKind, "---\n", 3)
	write(t, path, documents[0]+"---\n"+documents[2])
	r, err := stream.Recv()
	if err != nil || r.TypeUrl != "networking.istio.io/v1/WorkloadEntry" ||
		len(r.Resources) != 0 || len(r.RemovedResources) != 1 || r.RemovedResources[0] != "a/we" {
		t.Errorf("%v, %v", r, err)
	}
}
