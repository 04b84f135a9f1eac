package injector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Functions provides the functions that templates may call besides those of package text/template.
type Functions struct {
	// Env returns a variable of the server's environment. If it is nil, every variable is empty.
	Env func(string) string

	rendering int // depth of nested calls of the function render
}

// maxMade bounds lists and texts that a function makes from a number.
const maxMade = 1 << 16

// maxRendering bounds the depth of nested calls of the function render.
const maxRendering = 4

// table returns the functions by name: sprig's, replaced by or extended with those of Istio's templates. None of them
// uses the network, or returns a text or a list without a bound.
func (f Functions) table() template.FuncMap {
	getenv := f.Env
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	t := sprig.TxtFuncMap()
	maps.Copy(t, template.FuncMap{
		"annotation":             annotation,
		"appendMultusNetwork":    appendMultusNetwork,
		"applicationPorts":       applicationPorts,
		"directory":              directory,
		"env":                    func(name, other string) string { return nonEmpty(getenv(name), other) },
		"expandenv":              func(s string) string { return os.Expand(s, getenv) },
		"excludeInboundPort":     excludeInboundPort,
		"excludeInterfaces":      same,
		"formatDuration":         formatDuration,
		"fromJSON":               fromJSON,
		"getHostByName":          func(string) (string, error) { return "", fmt.Errorf("names are not resolved here") },
		"includeInboundPorts":    applicationPorts,
		"indent":                 indent,
		"isset":                  isset,
		"kubevirtInterfaces":     same,
		"mergeMaps":              mergeMaps,
		"omit":                   omit,
		"omitNil":                omitNil,
		"otelResourceAttributes": otelResourceAttributes,
		"protoToJSON":            lastJSON(),
		"nindent":                func(n int, s string) (string, error) { return indent(n, "\n"+s) },
		"render":                 f.render,
		"repeat":                 repeat,
		"strdict":                strdict,
		"structToJSON":           toJSON,
		"toJSON":                 toJSON,
		"toJsonMap":              toJSONMap,
		"toLower":                strings.ToLower,
		"toYaml":                 toYAML,
		"until":                  func(n int) ([]int, error) { return until(0, n, 1) },
		"untilStep":              until,
		"valueOrDefault":         valueOrDefault,
	})
	for _, name := range []string{"seq", "randAlpha", "randAlphaNum", "randAscii", "randBytes", "randNumeric"} {
		delete(t, name) // their results have no bound
	}
	return t
}

func (f Functions) render(text string, data any) (string, error) {
	if f.rendering++; f.rendering > maxRendering {
		return "", fmt.Errorf("more than %d texts render one another", maxRendering)
	}
	t, err := template.New("render").Funcs(f.table()).Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.Execute(&bounded{w: &b, left: maxOutput}, data)
	return b.String(), err
}

// text returns a value as templates print it: whole numbers without an exponent, and "" for nil.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// annotation returns an annotation, or the value that stands in for a missing one.
func annotation(meta metav1.ObjectMeta, name string, other any) string {
	if v, ok := meta.Annotations[name]; ok {
		return v
	}
	return text(other)
}

func isset(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func valueOrDefault(value, other any) any {
	if value == nil || value == "" {
		return other
	}
	return value
}

func nonEmpty(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func same(list string) string { return list }

// directory returns a path up to and including the last slash.
func directory(name string) string {
	dir, _ := path.Split(name)
	return dir
}

// indent indents every line but the first, which is already at its place in the template.
func indent(spaces int, s string) (string, error) {
	if spaces < 0 || spaces > maxMade || spaces*strings.Count(s, "\n") > maxOutput {
		return "", fmt.Errorf("%d is no number of spaces", spaces)
	}
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", spaces)), nil
}

func repeat(n int, s string) (string, error) {
	if n < 0 || n*len(s) > maxMade || n > maxMade {
		return "", fmt.Errorf("repeat %d times is too long", n)
	}
	return strings.Repeat(s, n), nil
}

func until(start, stop, step int) ([]int, error) {
	if step == 0 || max(start, stop) > math.MaxInt32 || min(start, stop) < math.MinInt32 || (stop-start)/step > maxMade {
		return nil, fmt.Errorf("the numbers from %d to %d are too many", start, stop)
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		list = append(list, i)
	}
	return list, nil
}

func toYAML(v any) (string, error) {
	b, err := yaml.Marshal(v)
	return string(b), err
}

// toJSON encodes a value without escaping for HTML, which JSON does not need.
func toJSON(v any) (string, error) {
	if v == nil {
		return "{}", nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func fromJSON(s string) (any, error) {
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return nil, fmt.Errorf("read the JSON %s: %w", quoted(s), err)
	}
	return v, nil
}

// lastJSON returns a protoToJSON that caches the last message and its text, because most pods have the mesh's
// configuration.
func lastJSON() func(proto.Message) (string, error) {
	type written struct {
		message proto.Message
		text    string
	}
	var last atomic.Pointer[written]
	return func(m proto.Message) (string, error) {
		if w := last.Load(); w != nil && w.message == m {
			return w.text, nil
		}
		text, err := protoToJSON(m)
		if err == nil {
			last.Store(&written{m, text})
		}
		return text, err
	}
}

// protoToJSON encodes a message as protobuf's JSON, always with the same spacing.
func protoToJSON(m proto.Message) (string, error) {
	if p, ok := m.(proxyConfig); ok {
		m = withoutDefaults(p)
	}
	raw, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = json.Compact(&b, raw)
	return b.String(), err
}

func strdict(pairs ...string) (map[string]string, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("strdict takes keys and values in turn, not %d", len(pairs))
	}
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m, nil
}

func mergeMaps(list ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, next := range list {
		maps.Copy(m, next)
	}
	return m
}

func toJSONMap(list ...map[string]string) (string, error) { return toJSON(mergeMaps(list...)) }

// omit returns a map, of any type, without some keys.
func omit(m any, keys ...string) (any, error) {
	v := reflect.ValueOf(m)
	if !v.IsValid() || v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("omit takes a map and keys, not %T", m)
	}
	out := reflect.MakeMap(v.Type())
	for _, k := range v.MapKeys() {
		if !slices.Contains(keys, k.String()) {
			out.SetMapIndex(k, v.MapIndex(k))
		}
	}
	return out.Interface(), nil
}

// omitNil returns a map without nil values.
func omitNil(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if v != nil {
			out[k] = v
		}
	}
	return out
}

// excludeInboundPort adds a port to a comma-separated list of ports. Port 0 adds nothing.
func excludeInboundPort(port any, list string) string {
	ports := fields(list)
	p := strings.TrimSpace(text(port))
	if p != "" && p != "0" && !slices.Contains(ports, p) {
		ports = append(ports, p)
	}
	return strings.Join(ports, ",")
}

// applicationPorts lists the TCP ports of all containers but the proxy.
func applicationPorts(containers []corev1.Container) string {
	var ports []string
	for _, c := range containers {
		if c.Name == proxyContainer {
			continue
		}
		for _, p := range c.Ports {
			if p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP {
				ports = append(ports, strconv.Itoa(int(p.ContainerPort)))
			}
		}
	}
	return strings.Join(ports, ",")
}

func formatDuration(d any) string {
	switch d := d.(type) {
	case *durationpb.Duration:
		return d.AsDuration().String()
	case time.Duration:
		return d.String()
	}
	return text(d)
}

// appendMultusNetwork adds a network to the value of the annotation k8s.v1.cni.cncf.io/networks, which is a
// comma-separated list or a JSON list.
func appendMultusNetwork(existing, network string) string {
	existing = strings.TrimSpace(existing)
	if existing == "" {
		return network
	}
	namespace, name, ok := strings.Cut(network, "/")
	if !ok {
		namespace, name = "", network
	}
	if list, isJSON := strings.CutSuffix(existing, "]"); isJSON {
		if strings.Contains(existing, strconv.Quote(name)) {
			return existing
		}
		entry := `{"name": ` + strconv.Quote(name)
		if namespace != "" {
			entry += `, "namespace": ` + strconv.Quote(namespace)
		}
		if strings.TrimSpace(list) != "[" {
			list += ", "
		}
		return list + entry + "}]"
	}
	if slices.Contains(fields(existing), network) {
		return existing
	}
	return existing + ", " + network
}

func quoted(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return strconv.Quote(s)
}
