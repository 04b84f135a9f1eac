package openness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// The namespaces that the objects of a world name. A Slot replaces them by its own.
const (
	home      = "store"
	neighbour = "other"
	root      = "istio-system"
)

// World is a few objects that are in the cluster together.
type World struct {
	Name      string
	Objects   []*unstructured.Unstructured
	Odd       []string // the places that Generate made odd, with their values
	Generated bool     // so that the API server may refuse it
}

// ParseWorld reads the objects of a YAML text.
func ParseWorld(name string, text []byte) (World, error) {
	objects, err := cluster.Parse(text)
	if err != nil {
		return World{}, fmt.Errorf("read %s: %w", name, err)
	}
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(home)
		}
	}
	return World{Name: name, Objects: objects}, nil
}

// Shared reports whether a world has objects that apply to proxies of other worlds, so that it has to be alone.
func (w World) Shared() bool {
	return slices.ContainsFunc(w.Objects, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == root })
}

// Unreadable returns why istiod cannot decode an object of the world, or nil. istiod reads no object of a kind as long
// as the API server has one that it cannot decode.
func (w World) Unreadable() error {
	for _, o := range w.Objects {
		kind := kinds.Find(o.GetAPIVersion(), o.GetKind())
		if kind == nil || !kind.Istio {
			continue
		}
		spec, err := json.Marshal(o.Object["spec"])
		if err == nil {
			err = json.Unmarshal(spec, kind.New())
		}
		if err != nil {
			return fmt.Errorf("decode %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// YAML returns the objects as a text.
func (w World) YAML() []byte {
	var out bytes.Buffer
	for _, o := range w.Objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			panic(err) // it came from JSON
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}

// Slot is a place for a world: two namespaces with the same Services, Pods and Secrets as any other slot.
type Slot int

// Home returns the namespace of the slot.
func (s Slot) Home() string { return fmt.Sprintf("%s-%03d", home, int(s)) }

// Neighbour returns the namespace beside Home.
func (s Slot) Neighbour() string { return fmt.Sprintf("%s-%03d", neighbour, int(s)) }

// Place returns a text with the namespaces of the slot.
func (s Slot) Place(text string) string {
	return strings.NewReplacer("$HOME", s.Home(), "$OTHER", s.Neighbour(), "$SLOT", fmt.Sprint(int(s))).Replace(text)
}

// In returns the world as it is in a slot. Its names of namespaces are replaced where they are whole words of a
// string.
func (w World) In(s Slot) World {
	out := World{Name: w.Name, Odd: w.Odd, Generated: w.Generated}
	for _, o := range w.Objects {
		o = &unstructured.Unstructured{Object: s.put(o.Object).(map[string]any)}
		out.Objects = append(out.Objects, o)
	}
	return out
}

func (s Slot) put(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = s.put(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = s.put(x)
		}
		return out
	case string:
		return s.rename(v)
	}
	return v
}

// rename replaces the namespaces in a string: whole words, between characters that no name of a namespace has.
func (s Slot) rename(text string) string {
	var out strings.Builder
	isPart := func(c byte) bool {
		return c == '-' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z'
	}
	for i := 0; i < len(text); {
		if !isPart(text[i]) {
			out.WriteByte(text[i])
			i++
			continue
		}
		j := i
		for j < len(text) && isPart(text[j]) {
			j++
		}
		switch text[i:j] {
		case home:
			out.WriteString(s.Home())
		case neighbour:
			out.WriteString(s.Neighbour())
		default:
			out.WriteString(text[i:j])
		}
		i = j
	}
	return out.String()
}

// Address is the address of a Pod or Service of the slot: 10.1.SLOT.n, and 10.96.SLOT.n.
func (s Slot) pod(n int) string { return fmt.Sprintf("10.%d.%d.%d", 1+int(s)/250, int(s)%250, n) }
func (s Slot) service(n int) string {
	return fmt.Sprintf("10.%d.%d.%d", 96+int(s)/250, 1+int(s)%250, n)
}

// workload is a Service with one Pod.
type workload struct {
	name  string
	n     int  // of its addresses
	other bool // it is in the neighbour namespace
	ports map[string][2]int64
}

var workloads = []workload{
	{"web", 11, false, map[string][2]int64{"http": {80, 8080}, "tcp": {9000, 9000}, "https": {443, 8443}}},
	{"pay", 12, false, map[string][2]int64{"http": {80, 8080}, "tcp": {9000, 9000}, "https": {443, 8443}}},
	{"secret", 13, true, map[string][2]int64{"http": {80, 8080}}},
	{"gw", 14, false, map[string][2]int64{"http": {80, 80}, "https": {443, 443}, "tcp": {9000, 9000}, "http2": {8080, 8080},
		"https2": {8443, 8443}}},
}

// istio returns the label by which Gateways select. A Gateway selects Pods of all namespaces, so each slot has its
// own.
func (s Slot) istio(w workload) string {
	if w.name == "gw" {
		return s.Home()
	}
	return w.name
}

// Base returns what a slot has beside the world in it. The certificate is in the Secrets `cert` and `cert-cacert`.
func (s Slot) Base(certificate, key string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	add := func(o map[string]any) { out = append(out, &unstructured.Unstructured{Object: o}) }
	for _, ns := range []string{s.Home(), s.Neighbour()} {
		add(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns,
			"labels": map[string]any{"team": strings.TrimRight(ns, "-0123456789")}}})
	}
	for _, w := range workloads {
		ns := s.Home()
		if w.other {
			ns = s.Neighbour()
		}
		labels := map[string]any{"app": w.name, "istio": s.istio(w), "version": "v1", "security.istio.io/tlsMode": "istio"}
		var ports, slicePorts []any
		for _, name := range slices.Sorted(maps.Keys(w.ports)) {
			p := w.ports[name]
			ports = append(ports, map[string]any{"name": name, "port": p[0], "targetPort": p[1], "protocol": "TCP"})
			slicePorts = append(slicePorts, map[string]any{"name": name, "port": p[1], "protocol": "TCP"})
		}
		exported := map[string]any{"networking.istio.io/exportTo": s.Home() + "," + s.Neighbour()}
		add(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": w.name, "namespace": ns,
			"annotations": exported},
			"spec": map[string]any{"clusterIP": s.service(w.n), "selector": map[string]any{"app": w.name}, "ports": ports}})
		add(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": w.name + "-0", "namespace": ns,
			"labels": labels},
			"spec": map[string]any{"serviceAccountName": w.name, "containers": []any{map[string]any{"name": "app", "image": "app"},
				map[string]any{"name": "istio-proxy", "image": "proxy"}}},
			"status": map[string]any{"phase": "Running", "podIP": s.pod(w.n), "podIPs": []any{map[string]any{"ip": s.pod(w.n)}},
				"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
		add(map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata": map[string]any{"name": w.name + "-1", "namespace": ns, "labels": map[string]any{"kubernetes.io/service-name": w.name}},
			"ports":    slicePorts,
			"endpoints": []any{map[string]any{"addresses": []any{s.pod(w.n)}, "conditions": map[string]any{"ready": true, "serving": true,
				"terminating": false},
				"targetRef": map[string]any{"kind": "Pod", "name": w.name + "-0", "namespace": ns}}}})
	}
	for _, name := range []string{"cert", "cert2"} {
		add(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": name,
			"namespace": s.Home()},
			"stringData": map[string]any{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}})
	}
	add(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "cert-cacert", "namespace": s.Home()},
		"stringData": map[string]any{"ca.crt": certificate}})
	add(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ca", "namespace": s.Home()},
		"data": map[string]any{"ca.crt": certificate}})
	return out
}

// Proxy is one of the two proxies of a slot.
type Proxy string

// The proxies of a slot.
const (
	Sidecar Proxy = "sidecar"
	Gateway Proxy = "gateway"
)

// extensions are those of Istio's Envoy that change what a proxy is sent.
var extensions = []*corev3.Extension{
	{Name: "istio.alpn", Category: "envoy.filters.http", TypeUrls: []string{"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"}},
	{Name: "envoy.filters.http.peer_metadata", Category: "envoy.filters.http", TypeUrls: []string{"io.istio.http.peer_metadata.Config"}},
	{Name: "envoy.filters.http.istio_stats", Category: "envoy.filters.http", TypeUrls: []string{"stats.PluginConfig"}},
	{Name: "envoy.filters.network.istio_stats", Category: "envoy.filters.network", TypeUrls: []string{"stats.PluginConfig"}},
	{
		Name: "envoy.filters.network.metadata_exchange", Category: "envoy.filters.network",
		TypeUrls: []string{"envoy.tcp.metadataexchange.config.MetadataExchange"},
	},
}

// Node is what the proxy says that it is.
func (s Slot) Node(p Proxy) *corev3.Node {
	w, kind := workloads[0], "sidecar"
	if p == Gateway {
		w, kind = workloads[3], "router"
	}
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": s.Home(), "NAME": w.name + "-0", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0", "INSTANCE_IPS": s.pod(w.n),
		"SERVICE_ACCOUNT": w.name,
		"WORKLOAD_NAME":   w.name, "MESH_ID": "cluster.local", "INTERCEPTION_MODE": "REDIRECT", "PILOT_SAN": []any{"istiod.istio-system.svc"},
		"LABELS":       map[string]any{"app": w.name, "istio": s.istio(w), "version": "v1", "security.istio.io/tlsMode": "istio"},
		"PROXY_CONFIG": map[string]any{"discoveryAddress": "istiod.istio-system.svc:15012"},
	})
	if err != nil {
		panic(err) // it is made of strings
	}
	return &corev3.Node{
		Id:      fmt.Sprintf("%s~%s~%s-0.%s~%s.svc.cluster.local", kind, s.pod(w.n), w.name, s.Home(), s.Home()),
		Cluster: w.name + "." + s.Home(), Metadata: metadata, UserAgentName: "envoy", Extensions: extensions,
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}},
		},
	}
}
