package validation

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
)

const meta = "metadata: {name: a}\n"

// expect decodes text and compares its findings, each as line:column code field.
func expect(t *testing.T, text string, want ...string) Result {
	t.Helper()
	r := decode(text)
	var got []string
	for _, d := range r.Findings() {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d:%d %s %s", d.Line, d.Column, d.Code, d.Field)))
		if d.Message == "" {
			t.Errorf("no message in %+v", d)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("findings of\n%.2000s\n  %s\nwant\n  %s", text, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	return r
}

func TestAllFaultsOfADocument(t *testing.T) {
	expect(t, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: web
  lables: {x: y}
spec:
  hosts: [web]
  http:
  - mach: []
    timeout: 5
    retries: {perTryTimeout: 2x, attemps: 3}
    route:
    - destination: {host: web, port: {number: "80"}}
      weight: many
    - destination: {host: 5}
      weight: 1.5
    redirect: {port: 1, derivePort: X}
    corsPolicy: {allowCredentials: maybe, allowOrigins: {exact: a}}
extra: 1
`,
		"5:3 UnknownField metadata.lables",
		"9:5 UnknownField spec.http[0].mach",
		"10:14 WrongType spec.http[0].timeout",
		"11:30 WrongType spec.http[0].retries.perTryTimeout",
		"11:34 UnknownField spec.http[0].retries.attemps",
		"13:47 WrongType spec.http[0].route[0].destination.port.number",
		"14:15 WrongType spec.http[0].route[0].weight",
		"15:27 WrongType spec.http[0].route[1].destination.host",
		"16:15 WrongType spec.http[0].route[1].weight",
		"17:25 OneOf spec.http[0].redirect.derivePort",
		"18:36 WrongType spec.http[0].corsPolicy.allowCredentials",
		"18:57 WrongType spec.http[0].corsPolicy.allowOrigins",
		"19:1 UnknownField extra")
	expect(t, `apiVersion: v1
kind: Pod
metadata: {name: a, creationTimestamp: yesterday}
spec:
  containers:
  - {name: a, image: 5, ports: [{containerPort: x}], resources: {limits: {cpu: lots}}}
  nodeName: l
  nodeName: m
  hostNetwork: maybe
status: {podIP: 10.0.0.1, fromTheFuture: 1}
`,
		"3:40 WrongType metadata.creationTimestamp",
		"6:22 WrongType spec.containers[0].image",
		"6:49 WrongType spec.containers[0].ports[0].containerPort",
		"6:80 WrongType spec.containers[0].resources.limits.cpu",
		"8:3 DuplicateKey spec.nodeName",
		"9:16 WrongType spec.hostNetwork",
		"10:27 UnknownField status.fromTheFuture")
	expect(t, `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a}
spec:
  host: web
  trafficPolicy:
    tls: {mode: SIMPEL}
    outlierDetection: {interval: 1s, base_ejection_time: 1s, baseEjectionTime: 2s}
    loadBalancer:
      localityLbSetting: {distribute: [{from: a, to: {b: -1}}]}
`,
		"7:17 UnknownValue spec.trafficPolicy.tls.mode",
		"8:62 DuplicateKey spec.trafficPolicy.outlierDetection.baseEjectionTime",
		"10:58 WrongType spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to.b")
}

// What Istio takes, written in the ways in which people write it.
func TestEveryAcceptedSpelling(t *testing.T) {
	r := expect(t, `apiVersion: networking.istio.io/v1beta1
kind: DestinationRule
metadata: {name: a, creationTimestamp: null, managedFields: [{manager: x}],
  annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}
spec:
  host: web
  traffic_policy:
    outlier_detection: {interval: 5m, base_ejection_time: 1m30.5s, consecutive_5xx_errors: 5, split_external_local_origin_errors: yes}
    tls: {mode: SIMPLE}
    connectionPool: {tcp: {maxConnections: 7, connectTimeout: 0.25s}}
    loadBalancer: {consistentHash: {minimumRingSize: 10, useSourceIp: true}}
  subsets: null
status: {whatever: 1}
`)
	got := r.Documents[0].Object.Spec.(*networkingv1.DestinationRule)
	want := &networkingv1.DestinationRule{}
	if err := protojson.Unmarshal(
		[]byte(`{"host":"web","trafficPolicy":{"outlierDetection":{"interval":"300s","baseEjectionTime":"90.5s","consecutive5xxErrors":5,
		"splitExternalLocalOriginErrors":true},"tls":{"mode":"SIMPLE"},"connectionPool":{"tcp":{"maxConnections":7,"connectTimeout":"0.25s"}},
		"loadBalancer":{"consistentHash":{"minimumRingSize":"10","useSourceIp":true}}}}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(r.Documents[0].Object.Annotations); n != 0 {
		t.Errorf("%d annotations left", n)
	}
}

// Types are those of the CustomResourceDefinitions: what the API server refuses is an error in a file too.
func TestTypesOfTheAPIServer(t *testing.T) {
	r := expect(t, `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a}
spec:
  host: web
  trafficPolicy:
    tls: {mode: 1}
    connectionPool: {tcp: {maxConnections: "7"}}
    loadBalancer: {consistentHash: {minimumRingSize: "10", useSourceIp: "true"},
      warmup: {duration: 1, minimumPercent: "1", aggression: "1.5"}}
    outlierDetection: {consecutive5xxErrors: "5", minHealthPercent: 5.0}
`,
		"7:17 UnknownValue spec.trafficPolicy.tls.mode",
		"8:44 WrongType spec.trafficPolicy.connectionPool.tcp.maxConnections",
		"9:54 WrongType spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize",
		"9:73 WrongType spec.trafficPolicy.loadBalancer.consistentHash.useSourceIp",
		"10:26 WrongType spec.trafficPolicy.loadBalancer.warmup.duration",
		"10:45 WrongType spec.trafficPolicy.loadBalancer.warmup.minimumPercent",
		"10:62 WrongType spec.trafficPolicy.loadBalancer.warmup.aggression",
		"11:46 WrongType spec.trafficPolicy.outlierDetection.consecutive5xxErrors")
	if fix := r.Findings()[1].Fix; fix != "remove the quotes: 7" {
		t.Errorf("fix %q", fix)
	}
	// Other control planes send what protojson writes.
	d := Object(limits.Default(), kinds.DestinationRule, []byte(`{"metadata":{"name":"a"},"spec":{"host":"web",`+
		`"trafficPolicy":{"tls":{"mode":1},"loadBalancer":{"consistentHash":{"minimumRingSize":"10","useSourceIp":true}}}}}`))
	if d.Object == nil {
		t.Errorf("from another control plane: %v", d.Findings)
	}
}

// An expression that only some Envoys take is one that others refuse, with everything beside it.
func TestExpressionsThatAStockEnvoyRefuses(t *testing.T) {
	route := func(expr string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\n" +
			"spec: {hosts: [a], http: [{match: [{uri: {regex: '" + expr + "'}}], route: [{destination: {host: a}}]}]}\n"
	}
	expect(t, route("/[a-z]{1,20}/.*"))
	r := expect(t, route("[^/]{1,63}"), "4:50 RegexProgramSize spec.http[0].match[0].uri.regex")
	if r.Documents[0].Object == nil {
		t.Error("it is not used, though Istio's proxies take it")
	}
}

// A wrong type hides no other mistake of its object, and none is reported twice.
func TestFaultsOfFormAndOfMeaning(t *testing.T) {
	expect(t, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a}
spec:
  hots: [web]
  http:
  - match: [{uri: {regex: "("}}]
    timeout: 0.1ms
    route:
    - {destination: {host: web}, weight: "50"}
    - {destination: {host: web}, weight: 0}
`,
		"5:3 UnknownField spec.hots",
		"7:27 IST0106 spec.http[0].match[0].uri.regex",
		"8:14 IST0106 spec.http[0].timeout",
		"10:42 WrongType spec.http[0].route[0].weight")
}

func TestDurations(t *testing.T) {
	for written, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "0.001s": time.Millisecond, "250ms": 250 * time.Millisecond,
		"1us": time.Microsecond, "0s": 0, "-1.5s": -1500 * time.Millisecond, "-0.5s": -500 * time.Millisecond,
		"1.000000001s": time.Second + 1, "10s": 10 * time.Second,
	} {
		n := &node{shape: text, value: written}
		f := &findings{}
		protoSchema{findings: f}.duration(n, "x")
		got, err := time.ParseDuration(n.value)
		if err != nil || got != want || len(f.list) > 0 {
			t.Errorf("%s became %s: %v %v", written, n.value, err, f.list)
		}
	}
}

// The items of a List within a List are objects too, and one that cannot be read may hold security objects.
func TestNestedLists(t *testing.T) {
	r := expect(t, `apiVersion: v1
kind: List
items:
- kind: List
  items:
  - apiVersion: v1
    kind: Service
    metadata: {name: b}
    spec: {}
- kind: List
  items:
  - {kind: PeerAuthentication}
  item: []
`, "13:3 UnknownField item")
	if d := r.Documents; len(d) != 2 || d[0].Object == nil || d[0].Object.Name != "b" || d[1].Object != nil || !d[1].Vital {
		t.Errorf("documents %+v", d)
	}
}

func TestDocuments(t *testing.T) {
	r := expect(t, `# nothing before
---
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {x: "1"}, uid: u}
---
---
# only a comment
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: b}
  spec: {}
- apiVersion: v1
  kind: ServiceAccount
  metadata: {name: c}
- apiVersion: v1
  kind: Service
  metadata: {name: d, namespace: e}
  spek: {}
---
apiVersion: apps/v1
kind: Deployment
spec: {anything: goes}
---
{"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": {"name": "f", "creationTimestamp": "2024-05-06T07:08:09Z"}}
`, "23:3 UnknownField spek")
	var got []string
	for _, d := range r.Documents {
		s := d.Key.String()
		if d.Object != nil {
			s += " " + d.Object.Position
		}
		got = append(got, s)
	}
	want := "Namespace a dir/f.yaml:3:1, Service default/b dir/f.yaml:13:3, Service e/d, PeerAuthentication default/f dir/f.yaml:29:1"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if o := r.Documents[0].Object; o.Labels["x"] != "1" || o.UID != "u" || !o.Created.IsZero() {
		t.Errorf("object %+v", o)
	}
	if svc := r.Documents[1].Object.Spec.(*corev1.Service); svc.Namespace != "default" || svc.Kind != "" {
		t.Errorf("service %+v", svc.ObjectMeta)
	}
	if o := r.Documents[3].Object; !o.Created.Equal(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)) {
		t.Errorf("created %v", o.Created)
	}
}

func TestKindsThatAreNotOurs(t *testing.T) {
	restricting := regexp.MustCompile(`security\.istio\.io|kind: (Virtual|Gateway|DestinationRule|List)`)
	for text, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\n":                                    "",
		"apiVersion: v1\nkind: ServiceAccount\n":                                     "",
		"apiVersion: v1\nkind: Event\n":                                              "",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n":                    "",
		"apiVersion: gateway.networking.x-k8s.io/v1\nkind: XListenerSet\n":           "",
		"apiVersion: v1\nkind: Service\nmetdata: {name: a}\n":                        "3:1 UnknownField metdata",
		"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetdata: {}\nspec: []\n": "3:1 UnknownField metdata, 4:7 WrongType spec",
		"apiVersion: v1\nkind: Service\nmetadata: {nmae: a}\n":                       "3:12 UnknownField metadata.nmae",
		"apiVersion: v1\nkind: Servce\n":                                             "2:7 UnknownKind kind",
		"apiVersion: v2\nkind: Service\n":                                            "1:13 UnknownVersion apiVersion",
		"apiVersion: networking.istio.io/v9\nkind: Gateway\n":                        "1:13 UnknownVersion apiVersion",
		"apiVersion: networking.istio.io/v1\nkind: VirtualServices\n":                "2:7 UnknownKind kind",
		"apiVersion: networking.isto.io/v1\nkind: VirtualService\n":                  "1:13 UnknownKind apiVersion",
		"apiVersion: network.istio.io/v1\nkind: VirtualService\n":                    "1:13 UnknownKind apiVersion",
		"apiVersion: networking.isto.io/v1\nkind: VirtualServce\n":                   "1:13 UnknownKind apiVersion",
		"apiVersion: networking.isto.io/v1\nkind: Other\n":                           "1:13 UnknownKind apiVersion",
		"apiVersion: istio.io/v1\nkind: DestinationRule\n":                           "1:13 UnknownKind apiVersion",
		"apiVersion: v1\nkind: VirtualService\n":                                     "1:13 UnknownKind apiVersion",
		"apiVersion: networking.istio.io\nkind: VirtualService\n":                    "1:13 UnknownKind apiVersion",
		"apiVersion: networking.istio.io/v1\nkind: HTTPRoute\n":                      "1:13 UnknownKind apiVersion",
		"apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\n":               "",
		"apiVersion: policy.linkerd.io/v1\nkind: AuthorizationPolicy\n":              "",
		"apiVersion: serving.knative.dev/v1\nkind: Service\n":                        "",
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\n":                          "1:1 MissingField metadata, 1:1 MissingField spec.rules",
		"apiVersion: networking.k8s.io/v1beta1\nkind: Ingress\n":                     "1:13 UnknownVersion apiVersion",
		"apiVersion: networking.k8s.io/v1\nkind: Ingres\n":                           "2:7 UnknownKind kind",
		"apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: XBackend\n":           "2:7 UnknownKind kind",
		"apiVersion: security.istio.io/v1\nkind: AuthorisationPolicy\n":              "2:7 UnknownKind kind",
		"apiVersion: security.istio.io/v2\nkind: AuthorizationPolicy\n":              "1:13 UnknownVersion apiVersion",
		"kind: Service\nmetadata: {name: a}\n":                                       "1:1 MissingField apiVersion",
		"apiversion: v1\nkind: Service\n":                                            "1:1 MissingField apiVersion",
		"- a\n":                                                                      "1:1 WrongType",
		"just text\n":                                                                "1:1 WrongType",
		"apiVersion: v1\nkind: List\n":                                               "1:1 MissingField items",
		"apiVersion: v1\nkind: Service\nspec: {}\n":                                  "1:1 MissingField metadata",
		"apiVersion: v1\nkind: Service\nmetadata: {}\n":                              "3:11 MissingField metadata.name",
		"apiVersion: v1\nkind: Service\nmetadata: {name: A_b}\n":                     "3:18 IST0106 metadata.name",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: B}\n":         "3:32 IST0106 metadata.namespace",
		"apiVersion: v1\nkind: Node\nmetadata: {name: a, namespace: b}\n":            "3:32 Doubtful metadata.namespace",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {x: 'a b'}}\n":       "3:33 IST0106 metadata.labels.x",
	} {
		var list []string
		if want != "" {
			list = strings.Split(want, ", ")
		}
		r := expect(t, text, list...)
		for _, d := range r.Documents {
			if d.Vital != restricting.MatchString(text) {
				t.Errorf("%q: vital %v", text, d.Vital)
			}
			if HasErrors(d.Findings) != !strings.Contains(want, "Doubtful") {
				t.Errorf("%q: %v", text, d.Findings)
			}
		}
	}
}

// A document of no known kind that may be, or hold, an object that restricts something is vital. No other is.
func TestVitalDocuments(t *testing.T) {
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a}\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n"
	rules := Rules{Limits: limits.Default(), Vital: []*kinds.Kind{kinds.ConfigMap}}
	within := func(head, text string) string {
		return head + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
	}
	upper := strings.NewReplacer("apiVersion", "ApiVersion", "kind", "Kind", "metadata", "Metadata")
	for text, vital := range map[string]bool{
		service + policy:            true,
		policy + service:            true,
		service + service:           false,
		service + "kind: Sidecar\n": true,
		upper.Replace(policy):       true,
		within("apiVersion: v1beta1\nkind: List\nitems:\n  - ", policy):   true,
		within("apiVersion: v1beta1\nkind: List\nitems:\n  - ", service):  false,
		within("items:\n  - ", policy):                                    true,
		within("items:\n  - ", service):                                   false,
		within("apiVersion: v1\nkind: List\nitems:\n    ", policy):        true,
		within("apiVersion: v1\nkind: List\nx: 1\nitems:\n  - ", policy):  true,
		within("apiVersion: v1\nkind: List\nx: 1\nitems:\n  - ", service): false,
		within("apiVersion: v1\nkind: List\nitems: []\nx:\n  - ", policy): true,
		within("apiVersion: v1\nkind: List\nitemz:\n  - ", service):       true,
		"apiVersion: v1\nkind: List\nitems:\n":                            true,
		"apiVersion: v1\nkind: List\nitems: []\nx: 1\n":                   false,
		within("|\n    ", policy):                                         true,
		within("policies:\n    ", policy):                                 true,
		"image: {tag: '1'}\nlistens: [80]\n":                              false,
		"apiVersion: v1\nkind: ConfigMapList\nitems: []\n":                true,
		"apiVersion: v1\nkind: Configmaps\nmetadata: {name: istio}\n":     true,
		"apiVersion: v1\nkind: PodList\nitems: []\n":                      false,
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nspec: {}\n":   true,
		"apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nspec: {}\n":  false,
	} {
		r := rules.Decode("a.yaml", []byte(text))
		if len(r.Documents) != 1 || r.Documents[0].Object != nil || r.Documents[0].Key.Name != "" || r.Documents[0].Vital != vital {
			t.Errorf("%q: %+v", text, r.Documents)
		}
	}
}

// An object that restricts something is vital if nothing of it can be in force.
func TestVitalObjects(t *testing.T) {
	for text, vital := range map[string]bool{
		"kind: Sidecar\nspec: {workloadSelector: {labels: {version: 1}}, egress: [{hosts: ['./*']}]}\n": true,
		"kind: Sidecar\nspec: []\n":          true,
		"kind: Sidecar\nspec: {egress: 1}\n": false,
		"kind: DestinationRule\nspec: {host: [a], trafficPolicy: {tls: {mode: SIMPLE}}}\n":      true,
		"kind: DestinationRule\nspec: {host: [a]}\n":                                            false,
		"kind: VirtualService\nspec: {hosts: a, http: [{directResponse: {status: 403}}]}\n":     true,
		"kind: VirtualService\nspec: {hosts: a, http: [{route: [{destination: {host: a}}]}]}\n": false,
	} {
		r := decode("apiVersion: networking.istio.io/v1\nmetadata: {name: o}\n" + text)
		if len(r.Documents) != 1 || !HasErrors(r.Findings()) || r.Documents[0].Vital != vital {
			t.Errorf("%s: %+v", text, r.Documents)
		}
	}
}

// Numbers are read as kubectl does. What the API server does not take is refused in words of the user, not of Go.
func TestNumbers(t *testing.T) {
	for value, want := range map[string]string{
		"80.5":  "expected a whole number, found 80.5; write a whole number",
		"1e400": "expected a number, found a number that is too large; write a whole number without quotes",
	} {
		list := expect(t, "apiVersion: v1\nkind: Service\n"+meta+"spec: {ports: [{port: "+value+"}]}\n",
			"4:23 WrongType spec.ports[0].port").Findings()
		if len(list) == 1 && list[0].Message+"; "+list[0].Fix != want {
			t.Errorf("%s: %s; %s", value, list[0].Message, list[0].Fix)
		}
	}
	for _, value := range []string{"80.0", "8e1", "8_0", "0120", "0o120", "0x50"} { // kubectl makes 80 of them
		r := expect(t, "apiVersion: v1\nkind: Service\n"+meta+"spec: {ports: [{port: "+value+", targetPort: "+value+"}]}\n")
		if p := r.Documents[0].Object.Spec.(*corev1.Service).Spec.Ports[0]; p.Port != 80 || p.TargetPort.IntVal != 80 {
			t.Errorf("%s: ports %+v", value, p)
		}
	}
	for _, value := range []string{"80.5", "[1]", "99999999999"} {
		for _, d := range expect(t, "apiVersion: v1\nkind: Service\n"+meta+"spec: {ports: [{port: 80, targetPort: "+value+"}]}\n",
			"4:39 WrongType spec.ports[0].targetPort").Findings() {
			if strings.Contains(d.Message, "IntOrString") {
				t.Errorf("%s: %s", value, d.Message)
			}
		}
	}
	list := expect(t, document(kinds.DestinationRule, "spec: {host: a, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1e400}}}}\n"),
		"6:72 WrongType spec.trafficPolicy.connectionPool.tcp.maxConnections").Findings()
	if len(list) == 1 && list[0].Message != "expected a whole number, found a number that is too large" {
		t.Errorf("%s", list[0].Message)
	}
}

func TestBrokenFiles(t *testing.T) {
	histories.NoRace(t)
	deep := strings.Repeat("[", 150) + strings.Repeat("]", 150)
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"colon":       {"x: y\na: b: c\n", "2:1 Syntax"},
		"indent":      {"a:\n  b: 1\n c: 2\n", "3:2 Syntax"},
		"bracket":     {"a: 1\nb: [1, 2\nc: 4\n", "2:1 Syntax"},
		"quote":       {"a: 1\nb: \"x\nc: 3\n", "2:1 Syntax"},
		"tab":         {"a:\n\tb: 1\n", "2:1 Syntax"},
		"anchor":      {"a: 1\n---\n  b: *none\n", "3:3 Syntax"},
		"second":      {document(kinds.Namespace, "") + "---\na: b: c\n", "6:1 Syntax"},
		"NUL":         {"a: 1\nb: é\x00\n", "2:5 Limit"},
		"UTF-8":       {"a: 1\nb: \xff\n", "2:4 Limit"},
		"UTF-16":      {"\xff\xfea\x00", "1:4 Limit"},
		"size":        {"a: " + strings.Repeat("x", int(limits.Default().FileSize)), "1:1 Limit"},
		"documents":   {strings.Repeat("---\na: 1\n", limits.Default().FileDocs+1), "100002:1 Limit"},
		"depth":       {"a: " + deep, "1:103 Limit"},
		"bomb":        {bomb.String(), ""},
		"values":      {"a: &x [" + strings.Repeat("1,", 1000) + "1]\nb: [" + strings.Repeat("*x,", 300) + "1]", "1:1718 Limit b[199][855]"},
		"cycle":       {"a: &x [1, *x]", "1:11 Limit a[1][1]"},
		"merge cycle": {"a: &x {<<: *x}", "1:12 Limit a"},
		"tag":         {"apiVersion: v1\nkind: Service\nmetadata: {name: !!binary aaaa}\n", "3:18 WrongType metadata.name"},
		"key":         {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n? [a]\n: b\n", "4:3 WrongType"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want != "" {
				expect(t, c.text, c.want)
			} else if r := decode(c.text); len(r.Documents) != 1 || r.Documents[0].Findings[0].Code != "Limit" {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	r := expect(t, `apiVersion: v1
kind: Service
metadata: {name: a, labels: &l {x: "1", z: "2"}}
spec:
  selector:
    <<: *l
    z: "3"
  ports:
  - &p {name: a, port: 80}
  - {<<: [*p, {protocol: UDP, name: z}], name: b}
`)
	svc := r.Documents[0].Object.Spec.(*corev1.Service)
	if fmt.Sprint(svc.Spec.Selector) != "map[x:1 z:3]" || svc.Spec.Ports[1].Port != 80 ||
		svc.Spec.Ports[1].Name != "b" || svc.Spec.Ports[1].Protocol != "UDP" {
		t.Errorf("got %+v", svc.Spec)
	}
}

// A group or version that is not ours is checked by what was meant.
func TestGroupThatWasMeant(t *testing.T) {
	for written, want := range map[string]string{
		"network.istio.io/v1\nkind: VirtualService":        `did you mean networking.istio.io/v1?`,
		"networking.isto.io/v1beta1\nkind: VirtualService": `did you mean networking.istio.io/v1beta1?`,
		"networking.istio.io\nkind: VirtualService":        `did you mean networking.istio.io/v1?`,
		"network.istio.io/v1\nkind: EnvoyFilter":           `did you mean networking.istio.io/v1alpha3?`,
		"secure.istio.io/v1\nkind: AuthorizationPolicy":    `did you mean security.istio.io/v1?`,
		"gateway.network.k8s.io/v1\nkind: Gateway":         `did you mean gateway.networking.k8s.io/v1?`,
	} {
		r := decode("apiVersion: " + written + "\n")
		if list := r.Findings(); len(list) != 1 || list[0].Fix != want {
			t.Errorf("%s: %v, want %s", written, list, want)
		}
		if !r.Documents[0].Vital {
			t.Errorf("%s: not vital", written)
		}
	}
}

func TestSecretsAreNotQuoted(t *testing.T) {
	for _, d := range decode(
		"apiVersion: v1\nkind: Secret\n" + meta + "data: {a: hunter2!, b: 123456, c: [hunter2]}\ntype: {hunter2: 1}\n").Findings() {
		if s := d.String(); strings.Contains(s, "hunter2") || strings.Contains(s, "123456") && d.Field != "data.b" {
			t.Errorf("%s", s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for k, m := range mistakes() {
		f.Add([]byte(document(k, m.body)))
	}
	for _, c := range semantics() {
		f.Add([]byte(document(c.kind, "spec:\n  "+c.spec+"\n")))
	}
	f.Add([]byte("a: &x [*x, !!binary x, 0x1_0, .inf, 2001-01-01, ~, 1e400, 0o7]\n? {}\n: 1\n<<: 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range decode(string(data)).Documents {
			if d.Object == nil {
				if len(d.Findings) == 0 {
					t.Fatal("a document was left out without a finding")
				}
				continue
			}
			m, ok := d.Object.Spec.(proto.Message)
			if !ok || !d.Object.Kind.Istio {
				continue
			}
			spec, err := protojson.Marshal(m)
			if err != nil {
				t.Fatalf("%s cannot be written: %v", d.Object, err)
			}
			again := Object(limits.Default(), d.Object.Kind, []byte(`{"metadata":{"name":"a"},"spec":`+string(spec)+"}"))
			if again.Object == nil {
				t.Fatalf("%s is refused when written anew: %v", spec, again.Findings)
			}
			if !proto.Equal(again.Object.Spec.(proto.Message), m) {
				t.Fatalf("%s is read anew as %v", spec, again.Object.Spec)
			}
		}
	})
}
