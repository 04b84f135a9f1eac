package openness

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Schemas are the schemas of specifications, by kind, as a CustomResourceDefinition has them.
type Schemas map[string]map[string]any

// ReadSchemas returns the schemas of the newest version of each definition.
func ReadSchemas(definitions []*unstructured.Unstructured) Schemas {
	out := Schemas{}
	for _, d := range definitions {
		kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
		group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		for _, v := range versions {
			v, _ := v.(map[string]any)
			if spec, ok, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "properties", "spec"); ok {
				out[group+"/"+kind] = spec
				if v["name"] == "v1" {
					break
				}
			}
		}
	}
	return out
}

func (s Schemas) of(o *unstructured.Unstructured) map[string]any {
	k := o.GroupVersionKind()
	return s[k.Group+"/"+k.Kind]
}

// Generator makes worlds with odd fields. The same seed makes the same worlds.
type Generator struct {
	Schemas Schemas
	Good    []World
	r       *rand.Rand
}

// NewGenerator returns a generator of one seed.
func NewGenerator(schemas Schemas, good []World, seed uint64) *Generator {
	return &Generator{schemas, good, rand.New(rand.NewPCG(seed, 0))}
}

// World returns a good world of which one to three fields are odd.
func (g *Generator) World(name string) World {
	from := g.Good[g.r.IntN(len(g.Good))]
	if from.Shared() && g.r.IntN(2) == 0 { // they take longest, each by itself
		from = g.Good[g.r.IntN(len(g.Good))]
	}
	w := World{Name: name + " of " + from.Name, Generated: true}
	for _, o := range from.Objects {
		w.Objects = append(w.Objects, o.DeepCopy())
	}
	for range 1 + g.r.IntN(4)/2 {
		o := w.Objects[g.r.IntN(len(w.Objects))]
		if at := g.spoil(o); at != "" {
			w.Odd = append(w.Odd, o.GetKind()+" "+o.GetName()+" "+at)
		}
	}
	return w
}

// spoil changes one place of an object, and returns which.
func (g *Generator) spoil(o *unstructured.Unstructured) string {
	schema := g.Schemas.of(o)
	spec, _ := o.Object["spec"].(map[string]any)
	if schema == nil || spec == nil {
		return ""
	}
	if all := o.GetAnnotations(); len(all) > 0 && g.r.IntN(3) == 0 {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			all[key] = g.pick("", "True", "yes", " true", "1", "T", "false ")
		}
		o.SetAnnotations(all)
		return fmt.Sprintf("metadata.annotations: %q", all)
	}
	var places []place
	collect(&places, "spec", "spec", schema, spec, func(v any) { o.Object["spec"] = v })
	p := places[g.r.IntN(len(places))]
	if len(places) > 1 && p.name == "spec" && g.r.IntN(3) > 0 {
		p = places[1+g.r.IntN(len(places)-1)]
	}
	change := g.change(p)
	return p.path + ": " + change
}

// place is a value in an object that can be changed.
type place struct {
	path, name string // name is the name of the field, or of the list for an item
	schema     map[string]any
	value      any
	set        func(any)
	remove     func() // nil for an item
}

func collect(out *[]place, path, name string, schema map[string]any, v any, set func(any)) {
	*out = append(*out, place{path, name, schema, v, set, nil})
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			child := property(schema, key)
			if child == nil {
				continue
			}
			at := len(*out)
			collect(out, path+"."+key, key, child, v[key], func(x any) { v[key] = x })
			(*out)[at].remove = func() { delete(v, key) }
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i := range v {
			collect(out, fmt.Sprintf("%s[%d]", path, i), name, items, v[i], func(x any) { v[i] = x })
		}
	}
}

func property(schema map[string]any, key string) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	if child, ok := properties[key].(map[string]any); ok {
		return child
	}
	child, _ := schema["additionalProperties"].(map[string]any)
	return child
}

// change makes a place odd, and says how.
func (g *Generator) change(p place) string {
	if p.remove != nil && g.r.IntN(8) == 0 {
		p.remove()
		return "removed"
	}
	set := func(v any) string {
		p.set(v)
		return fmt.Sprintf("%.200q", fmt.Sprint(v))
	}
	switch v := p.value.(type) {
	case map[string]any:
		properties, _ := p.schema["properties"].(map[string]any)
		var unset []string
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			if _, is := v[key]; !is {
				unset = append(unset, key)
			}
		}
		if len(unset) > 0 && g.r.IntN(6) > 0 {
			key := unset[g.r.IntN(len(unset))]
			v[key] = g.make(key, properties[key].(map[string]any), 0)
			return fmt.Sprintf("%s added: %.200q", key, fmt.Sprint(v[key]))
		}
		return set(map[string]any{})
	case []any:
		items, _ := p.schema["items"].(map[string]any)
		switch n := g.r.IntN(6); {
		case n == 0:
			return set([]any{})
		case n == 1 && len(v) > 0:
			return set(append(slices.Clone(v), copied(v[g.r.IntN(len(v))])))
		case n == 2 && len(v) > 1:
			v = slices.Clone(v)
			slices.Reverse(v)
			return set(v)
		case n == 3 && items != nil:
			return set(append([]any{g.make(p.name, items, 0)}, v...))
		case items != nil:
			return set(append(slices.Clone(v), g.make(p.name, items, 0)))
		}
		return set([]any{})
	}
	return set(g.odd(p.name, p.schema, p.value))
}

func copied(v any) any {
	if m, ok := v.(map[string]any); ok {
		return (&unstructured.Unstructured{Object: m}).DeepCopy().Object
	}
	return v
}

// make returns a value for a field: a good one mostly.
func (g *Generator) make(name string, schema map[string]any, depth int) any {
	switch schema["type"] {
	case "object":
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(g.wanted(schema, properties, depth))) {
			out[key] = g.make(key, properties[key].(map[string]any), depth+1)
		}
		if child, ok := schema["additionalProperties"].(map[string]any); ok {
			out[g.pick("version", "app", "x-user", "")] = g.make(name, child, depth+1)
		}
		return out
	case "array":
		items, _ := schema["items"].(map[string]any)
		if items == nil || g.r.IntN(6) == 0 {
			return []any{}
		}
		return []any{g.make(name, items, depth+1)}
	}
	if g.r.IntN(3) == 0 {
		return g.odd(name, schema, g.good(name, schema))
	}
	return g.good(name, schema)
}

// wanted returns the fields of a new object: what its schema requires, and some more.
func (g *Generator) wanted(schema, properties map[string]any, depth int) map[string]bool {
	out := map[string]bool{}
	require := func(s map[string]any) {
		list, _ := s["required"].([]any)
		for _, key := range list {
			if key, ok := key.(string); ok && properties[key] != nil {
				out[key] = true
			}
		}
	}
	require(schema)
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, _ := schema[key].([]any); len(list) > 0 {
			if one, ok := list[g.r.IntN(len(list))].(map[string]any); ok {
				require(one)
			}
		}
	}
	keys := slices.Sorted(maps.Keys(properties))
	if len(keys) == 0 || depth > 4 {
		return out
	}
	for range g.r.IntN(3) {
		out[keys[g.r.IntN(len(keys))]] = true
	}
	return out
}

func (g *Generator) pick(list ...string) string { return list[g.r.IntN(len(list))] }

// values are good values by the name of the field.
var values = map[string][]string{
	"host": {"pay.store.svc.cluster.local", "pay", "ext.example.com", "web.store.svc.cluster.local",
		"secret.other.svc.cluster.local", "*.example.com"},
	"hosts":             {"pay.store.svc.cluster.local", "ext.example.com", "*", "*.example.com", "./*", "other/*", "*/*", "~/*"},
	"exportTo":          {".", "*", "~", "other"},
	"principals":        {"cluster.local/ns/store/sa/pay", "*", "*/sa/pay", "cluster.local/*"},
	"namespaces":        {"store", "other", "*", "sto*"},
	"serviceAccounts":   {"pay", "store/pay", "other/secret"},
	"requestPrincipals": {"issuer.example.com/subject", "*", "issuer.example.com/*", "*/subject"},
	"ipBlocks":          {"10.1.0.0/16", "192.0.2.7", "2001:db8::/32"},
	"remoteIpBlocks":    {"10.1.0.0/16", "192.0.2.7"},
	"paths":             {"/admin", "/admin/*", "*/admin", "/a/{*}/b", "/a/{**}", "*"},
	"methods":           {"GET", "POST", "*", "DEL*"},
	"ports":             {"8080", "80", "9000"},
	"key": {"request.headers[x-user]", "source.principal", "source.namespace", "request.auth.claims[group]",
		"request.auth.claims[a][b]", "destination.port", "source.ip", "connection.sni", "request.auth.audiences", "request.auth.presenter",
		"experimental.envoy.filters.network.mysql_proxy[db.t]", "destination.ip", "remote.ip"},
	"values":                {"admin", "store", "8080", "10.1.0.0/16", "*", "adm*", "pay.example.com"},
	"issuer":                {"issuer.example.com", "https://issuer.example.com"},
	"jwksUri":               {"https://127.0.0.1:1/keys"},
	"prefix":                {"/admin", "/", "Bearer "},
	"exact":                 {"/admin", "admin"},
	"regex":                 {"/adm.*", "a.*"},
	"subset":                {"v1", "v2"},
	"name":                  {"http", "x-user", "v1", "pay", "web", "cert"},
	"credentialName":        {"cert", "cert2", "kubernetes://cert", "other/cert"},
	"sni":                   {"pay.example.com"},
	"subjectAltNames":       {"spiffe://cluster.local/ns/store/sa/pay", "pay.example.com"},
	"caCertificates":        {"/etc/ca.pem", "system"},
	"clientCertificate":     {"/etc/cert.pem"},
	"privateKey":            {"/etc/key.pem"},
	"serverCertificate":     {"/etc/cert.pem"},
	"cipherSuites":          {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"},
	"address":               {"10.1.200.9", "ext.example.com"},
	"addresses":             {"10.200.0.9", "10.200.0.0/24"},
	"protocol":              {"HTTP", "HTTPS", "TCP", "TLS", "GRPC", "HTTP2"},
	"namespace":             {"store", "other"},
	"kind":                  {"Service", "Gateway", "Secret", "ConfigMap"},
	"group":                 {"", "gateway.networking.k8s.io"},
	"hostname":              {"pay.example.com", "*.example.com"},
	"sectionName":           {"http"},
	"sniHosts":              {"ext.example.com", "*.example.com"},
	"gateways":              {"gw", "mesh", "store/gw"},
	"destinationSubnets":    {"10.0.0.0/8"},
	"sourceSubnet":          {"10.1.0.0/16"},
	"sourceNamespace":       {"store", "other"},
	"bind":                  {"127.0.0.1", "10.1.0.11"},
	"defaultEndpoint":       {"127.0.0.1:8080"},
	"fromParams":            {"token"},
	"fromCookies":           {"token"},
	"outputPayloadToHeader": {"x-payload"},
	"header":                {"x-user"},
	"claim":                 {"sub", "group"},
	"audiences":             {"aud.example.com"},
	"verifyCertificateSpki": {"NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A="},
	"verifyCertificateHash": {"df6ff72fe9116521268f6f2dd4966f51df479883fe7037b39f75916ac3049d1a"},
	"url":                   {"file:///var/lib/a.wasm"},
	"configMapName":         {"ca"},
	"value":                 {"/admin", "x"},
	"version":               {"v1"},
	"trustDomains":          {"cluster.local", "*.local"},
}

// durations, numbers and texts are odd values of any field.
var (
	durations = []any{"0s", "-1s", "0.0000001s", "0.1ms", "1ns", "87600h", "9600h", "315576000001s", "5", "1.5s", "abc", ""}
	numbers   = []any{int64(0), int64(-1), int64(1), int64(2), int64(80), int64(8080), int64(100), int64(200), int64(65535), int64(65536),
		int64(1<<31 - 1), int64(1 << 31), int64(1<<32 - 1), int64(1 << 32), int64(1<<53 - 1)}
	blocks = []string{"10.0.0.0/99", "0.0.0.0/0", "10.0.0.1", "::/0", "10.1.2.3/8", "10.0.0.0/-1", "a.b.c.d", "10.0.0", "",
		"10.1.0.0/16 ", "010.1.0.0/16", "::ffff:10.1.0.0/112", "10.1.0.0/016", "fe80::1%eth0"}
	texts = []string{"", " ", "*", "**", "~", ".", "/", "-", "*/*", "*a*", "a*b", "~/*", "./*", "a/b/c", "\u00e9", "\u2603", "a b",
		"%00", "%2F", "[", "(", ":", "::1", "0", "-1", "true", "null", "999999", "1.2.3.4", "http://", "https://a.com", "spiffe://a/b",
		"kubernetes://cert", "configmap://ca", "{*}", "/{**}/{*}", "$1", "x\ty", "a,b", "cluster.*", "system"}
)

func (g *Generator) good(name string, schema map[string]any) any {
	if list, _ := schema["enum"].([]any); len(list) > 0 {
		return list[g.r.IntN(len(list))]
	}
	switch schema["type"] {
	case "boolean":
		return g.r.IntN(2) == 0
	case "integer":
		if strings.Contains(strings.ToLower(name), "port") || name == "number" {
			return []any{int64(80), int64(443), int64(9000), int64(8080), int64(8443)}[g.r.IntN(5)]
		}
		if strings.Contains(strings.ToLower(name), "status") {
			return []any{int64(403), int64(200), int64(503)}[g.r.IntN(3)]
		}
		return int64(g.r.IntN(100))
	case "number":
		return float64(g.r.IntN(100))
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return []any{int64(50), "50%"}[g.r.IntN(2)]
	}
	if list := values[name]; len(list) > 0 {
		return g.pick(list...)
	}
	if isDuration(name, schema) {
		return g.pick("1s", "10s", "30s")
	}
	return g.pick("a", "pay.store.svc.cluster.local", "pay.example.com", "x-user", "/admin", "store")
}

func isDuration(name string, schema map[string]any) bool {
	about, _ := schema["description"].(string)
	lower := strings.ToLower(name)
	for _, part := range []string{"timeout", "interval", "duration", "ttl", "delay", "maxage", "time"} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return strings.Contains(about, "1h/1m/1s/1ms")
}

// odd returns an odd value for a scalar.
func (g *Generator) odd(name string, schema map[string]any, now any) any {
	if list, _ := schema["enum"].([]any); len(list) > 0 && g.r.IntN(8) > 0 {
		return list[g.r.IntN(len(list))]
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return []any{int64(0), int64(-1), "200%", "http", "", "80"}[g.r.IntN(6)]
	}
	switch schema["type"] {
	case "boolean":
		return now != true
	case "integer":
		return numbers[g.r.IntN(len(numbers))]
	case "number":
		return []any{float64(0), -1.0, 0.5, 100.0, 200.0, 1e9, 0.00001}[g.r.IntN(7)]
	case "object":
		return map[string]any{}
	case "array":
		return []any{}
	}
	text, _ := now.(string)
	lower := strings.ToLower(name)
	switch {
	case isDuration(name, schema) && g.r.IntN(5) > 0:
		return durations[g.r.IntN(len(durations))]
	case (strings.Contains(lower, "ipblock") || strings.Contains(lower, "subnet")) && g.r.IntN(4) > 0:
		return g.pick(blocks...)
	case lower == "ports" && g.r.IntN(3) > 0:
		return g.pick("0", "080", "8080 ", " 8080", "+8080", "65536", "8080-8090", "http", "", "8080.0", "0x50", "-1", "1e3")
	case g.r.IntN(3) == 0:
		return g.pick(texts...)
	case g.r.IntN(6) == 0 && len(values[name]) > 0:
		return g.pick(values[name]...)
	}
	return g.bend(text)
}

// bend changes a text a little.
func (g *Generator) bend(s string) string {
	at := 0
	if len(s) > 0 {
		at = g.r.IntN(len(s))
		for at > 0 && s[at]&0xC0 == 0x80 { // within a character
			at--
		}
	}
	switch g.r.IntN(16) {
	case 0:
		return " " + s
	case 1:
		return s + " "
	case 2:
		return strings.ToUpper(s)
	case 3:
		return s + "."
	case 4:
		return "*" + s
	case 5:
		return s + "*"
	case 6:
		return s[:at] + "*" + s[at:]
	case 7:
		return s[:at] + "*"
	case 8:
		return "*" + s[at:]
	case 9:
		return s + "/"
	case 10:
		return "/" + s
	case 11:
		return s[:at]
	case 12:
		return s[at:]
	case 13:
		return strings.Repeat(s+"a", 1+300/(len(s)+1))
	case 14:
		return s[:at] + g.pick(" ", "%", "?", "#", "\\", "//", "..", "_", ":", "@", "\n", "é") + s[at:]
	}
	return s[:at] + "*" + s[at:] + "*"
}
