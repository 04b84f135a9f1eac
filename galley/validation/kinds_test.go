package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// mistake is a valid document of one kind, below its metadata, in which one field name is mistyped.
type mistake struct {
	body         string
	right, wrong string // the name as it should be, and as it is typed
}

// mistakes has a case for each kind. The text is the valid one: the test puts the mistake in, finds its line and column
// by itself, and checks that without the mistake the document has no finding at all.
func mistakes() map[*kinds.Kind]mistake {
	return map[*kinds.Kind]mistake{
		kinds.Namespace: {"spec:\n  finalizers: [kubernetes]\n", "finalizers", "finalisers"},
		kinds.Node: {"spec:\n  providerID: x\nstatus:\n  addresses:\n  - {type: InternalIP, address: 10.0.0.1}\n",
			"providerID", "providerId"},
		kinds.ConfigMap: {"data:\n  mesh: |\n    trustDomain: x\nimmutable: yes\n", "immutable", "imutable"},
		kinds.Secret:    {"type: kubernetes.io/tls\nstringData:\n  a: b\ndata:\n  tls.crt: YQ==\n", "stringData", "stringdata"},
		kinds.Pod: {"spec:\n  containers:\n  - name: a\n    ports:\n    - containerPort: 80\n" +
			"    resources: {limits: {cpu: 100m, memory: 1Gi}}\nstatus: {podIP: 10.0.0.1}\n", "containerPort", "containrPort"},
		kinds.Service: {"spec:\n  selector: {app: a}\n  ports:\n  - port: 80\n    targetPort: http\n", "targetPort", "target_port"},
		kinds.EndpointSlice: {"addressType: IPv4\nports:\n- {name: a, port: 80}\nendpoints:\n" +
			"- addresses: [10.0.0.1]\n  conditions: {ready: true}\n", "conditions", "condition"},

		kinds.WorkloadEntry: {"spec:\n  address: 10.0.0.1\n  serviceAccount: a\n", "serviceAccount", "serviceaccount"},
		kinds.WorkloadGroup: {"spec:\n  template: {}\n  probe:\n    httpGet:\n      port: 80\n    periodSeconds: 4\n",
			"periodSeconds", "periodSecond"},
		kinds.ServiceEntry: {"spec:\n  hosts: [example.com]\n  resolution: DNS\n  ports:\n  - number: 443\n    name: tls\n    protocol: TLS\n",
			"resolution", "resolutoin"},
		kinds.Sidecar: {"spec:\n  egress:\n  - hosts: [\"./*\"]\n  outboundTrafficPolicy:\n    mode: REGISTRY_ONLY\n", "mode", "mod"},
		kinds.DestinationRule: {"spec:\n  host: a\n  trafficPolicy:\n    connectionPool:\n      tcp:\n        maxConnections: 5\n",
			"maxConnections", "maxConnection"},
		kinds.Gateway: {"spec:\n  servers:\n  - hosts: [\"*\"]\n    port: {number: 80, name: http, protocol: HTTP}\n",
			"protocol", "protcol"},
		kinds.VirtualService: {"spec:\n  hosts: [a]\n  http:\n  - route:\n    - destination: {host: a}\n      weight: 5\n", "weight", "wieght"},
		kinds.EnvoyFilter: {"spec:\n  configPatches:\n  - applyTo: CLUSTER\n    patch:\n      operation: MERGE\n      value: {anything: goes}\n",
			"operation", "opration"},
		kinds.ProxyConfig: {"spec:\n  concurrency: 2\n  image: {imageType: debug}\n", "imageType", "imageTyp"},

		kinds.PeerAuthentication: {"spec:\n  mtls:\n    mode: STRICT\n", "mtls", "mTLS"},
		kinds.AuthorizationPolicy: {"spec:\n  rules:\n  - from:\n    - source:\n        principals: [td/ns/a/sa/b]\n        notNamespaces: [b]\n",
			"notNamespaces", "notNamespace"},
		kinds.RequestAuthentication: {"spec:\n  jwtRules:\n  - issuer: a\n    jwksUri: https://a/b\n", "jwksUri", "jwksURI"},
		kinds.Telemetry:             {"spec:\n  tracing:\n  - randomSamplingPercentage: 1.5\n", "randomSamplingPercentage", "randomSampling"},
		kinds.WasmPlugin:            {"spec:\n  url: oci://a/b\n  pluginConfig: {x: 1}\n", "pluginConfig", "pluginconf"},
		kinds.TrafficExtension:      {"spec:\n  lua:\n    inlineCode: x = 1\n", "inlineCode", "inline"},

		kinds.ServiceExport: {"spec:\n  exportedLabels: {a: b}\n", "exportedLabels", "exportedLabel"},
		kinds.ServiceImport: {"spec:\n  type: ClusterSetIP\n  ips: [10.1.0.1]\n  ports:\n  - {port: 80, appProtocol: http}\n",
			"appProtocol", "appprotocol"},

		kinds.Ingress: {"spec:\n  rules:\n  - http:\n      paths:\n" +
			"      - {path: /a, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}\n", "pathType", "pathtype"},
		kinds.IngressClass: {"spec:\n  controller: istio.io/ingress-controller\n", "controller", "controler"},

		kinds.GatewayClass: {"spec:\n  controllerName: istio.io/gateway-controller\n  description: x\n", "description", "descripton"},
		kinds.KubeGateway: {"spec:\n  gatewayClassName: istio\n  listeners:\n  - {name: a, port: 80, protocol: HTTP, hostname: a.b}\n",
			"hostname", "hostName"},
		kinds.ListenerSet: {"spec:\n  parentRef: {name: g}\n  listeners:\n  - {name: a, port: 80, protocol: HTTP, hostname: a.b}\n",
			"hostname", "hostName"},
		kinds.HTTPRoute: {"spec:\n  rules:\n  - matches:\n    - path: {type: PathPrefix, value: /a}\n    timeouts: {request: 1s}\n",
			"timeouts", "timeout"},
		kinds.GRPCRoute: {"spec:\n  rules:\n  - matches:\n    - method: {service: a.b}\n", "service", "servce"},
		kinds.TLSRoute:  {"spec:\n  hostnames: [a.b]\n  rules:\n  - backendRefs:\n    - {name: a, port: 80}\n", "hostnames", "hosts"},
		kinds.TCPRoute:  {"spec:\n  rules:\n  - backendRefs:\n    - {name: a, port: 80, weight: 5}\n", "weight", "wait"},
		kinds.UDPRoute:  {"spec:\n  rules:\n  - backendRefs:\n    - {name: a, port: 53, weight: 5}\n", "weight", "wait"},
		kinds.ReferenceGrant: {"spec:\n  from:\n  - {group: a, kind: b, namespace: c}\n  to:\n  - {group: \"\", kind: Secret}\n",
			"namespace", "namespce"},
		kinds.BackendTLSPolicy: {"spec:\n  targetRefs:\n  - {group: \"\", kind: Service, name: a}\n  validation:\n    hostname: a.b\n",
			"hostname", "hostNames"},
		kinds.XBackendTrafficPolicy: {"spec:\n  targetRefs:\n  - {group: \"\", kind: Service, name: a}\n" +
			"  retryConstraint:\n    budget: {percent: 30}\n", "retryConstraint", "retryConstraints"},
	}
}

func document(k *kinds.Kind, body string) string {
	ns := "  namespace: ns\n"
	if k.Cluster {
		ns = ""
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: a\n%s%s", k.APIVersion(k.Versions[0]), k.Name, ns, body)
}

func decode(text string) Result { return Decode(limits.Default(), "dir/f.yaml", []byte(text)) }

func TestOneTypingMistakeForEachKind(t *testing.T) {
	cases := mistakes()
	for _, k := range kinds.All() {
		m, ok := cases[k]
		if !ok {
			t.Errorf("no case for %s", k.APIVersion(k.Versions[0])+" "+k.Name)
			continue
		}
		t.Run(k.Group+"/"+k.Name, func(t *testing.T) {
			for _, version := range k.Versions {
				good := strings.Replace(document(k, m.body), k.APIVersion(k.Versions[0]), k.APIVersion(version), 1)
				r := decode(good)
				if len(r.Findings()) > 0 || len(r.Documents) != 1 || r.Documents[0].Object == nil {
					t.Fatalf("%s: the document without the mistake: %v", version, r.Findings())
				}
			}
			good := document(k, m.body)
			head := len(good) - len(m.body)
			i := strings.Index(m.body, m.right+":")
			if i < 0 {
				t.Fatalf("%q is not in the text", m.right)
			}
			i += head
			bad := good[:i] + m.wrong + good[i+len(m.right):]
			line, column := 1+strings.Count(bad[:i], "\n"), i-strings.LastIndex(bad[:i], "\n")
			r := decode(bad)
			if len(r.Findings()) != 1 {
				t.Fatalf("findings %v, want one", r.Findings())
			}
			d := r.Findings()[0]
			if d.File != "dir/f.yaml" || d.Line != line || d.Column != column {
				t.Errorf("found at %s:%d:%d, want line %d, column %d", d.File, d.Line, d.Column, line, column)
			}
			if d.Code != "UnknownField" || d.Severity != diag.Error ||
				!strings.HasSuffix(d.Field, m.wrong) || !strings.Contains(d.Message, m.wrong) || d.Fix == "" {
				t.Errorf("finding %+v", d)
			}
			if r.Documents[0].Object != nil || r.Documents[0].Key.Name != "a" || r.Documents[0].Key.Kind != k {
				t.Errorf("document %+v", r.Documents[0])
			}
		})
	}
}

func TestValidObjectsOfEachKind(t *testing.T) {
	for _, k := range kinds.All() {
		o := decode(document(k, mistakes()[k].body)).Documents[0].Object
		want := kinds.Key{Kind: k, Namespace: "ns", Name: "a"}
		if k.Cluster {
			want.Namespace = ""
		}
		if o.Key != want || o.Position != "dir/f.yaml:1:1" {
			t.Errorf("got %v at %s", o.Key, o.Position)
		}
		if got, want := fmt.Sprintf("%T", o.Spec), fmt.Sprintf("%T", k.New()); got != want {
			t.Errorf("%s: spec is a %s, want %s", k.Name, got, want)
		}
	}
}
