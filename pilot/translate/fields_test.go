package translate_test

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// TestNoFieldIsIgnored sets each field of each Istio kind alone. Then the bytes of some proxy change, or a finding
// names the field. testdata/fields has a mesh, and for each kind objects to set the field in: it has an effect if one
// of its values has one in one of the objects. Each value of an enum has an effect, but for the default.
func TestNoFieldIsIgnored(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	f := newFieldTest(t)
	// What is read elsewhere, or by people alone.
	elsewhere := map[string]string{
		"AuthorizationPolicy targetRef.namespace":            "validation refuses any but the policy's own",
		"AuthorizationPolicy targetRefs.namespace":           "validation refuses any but the policy's own",
		"EnvoyFilter targetRefs.namespace":                   "validation refuses any but the object's own",
		"Gateway servers.name":                               "a label",
		"Gateway servers.tls.tlsCertificates.caCertificates": "validation says that it has no effect",
		"Sidecar egress.port.name":                           "a label",
		"Telemetry targetRef.namespace":                      "validation refuses any but the object's own",
		"Telemetry targetRefs.namespace":                     "validation refuses any but the object's own",
		"TrafficExtension targetRefs.namespace":              "validation refuses any but the object's own",
		"WasmPlugin targetRef.namespace":                     "validation refuses any but the object's own",
		"WasmPlugin targetRefs.namespace":                    "validation refuses any but the object's own",
		"Sidecar ingress.port.name":                          "a label",
	}
	for _, kind := range kinds.All() {
		if !kind.Istio || kind == kinds.WorkloadGroup || kind == kinds.ProxyConfig { // which registration and injection read
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			cases := []*kinds.Object{{Key: kinds.Key{Kind: kind, Namespace: "a", Name: "x"}, Spec: kind.New()}}
			if files, _ := filepath.Glob(filepath.Join("testdata", "fields", kind.Name+".yaml")); len(files) == 1 {
				cases = nil
				for _, c := range objects(t, kind.Name, read(t, files[0])) {
					cases = append(cases, c.Object)
				}
			}
			for _, path := range leaves(kind.New().(proto.Message).ProtoReflect().Descriptor(), nil) {
				effective := func(o *kinds.Object) bool {
					defer f.restore(o.Key)
					return f.effective(o, path)
				}
				if elsewhere[kind.Name+" "+path.String()] != "" {
					continue
				}
				if i := slices.IndexFunc(cases, effective); i < 0 {
					t.Errorf("%s: it changes nothing, and no finding names it", path)
				} else {
					toFront(cases, i)
				}
				for name, v := range path.enum() {
					if of := kind.Name + " " + path.String() + " " + name; sameAsDefault()[of] == "" && !slices.ContainsFunc(cases,
						func(o *kinds.Object) bool { defer f.restore(o.Key); return f.acts(o, path, v) }) {
						t.Errorf("%s: the value changes nothing, and no finding names it", of)
					}
				}
			}
		})
	}
}

// fieldTest is a mesh in which fields are set, and proxies of every sort. Only the object that is set differs between
// two states of the mesh, so each costs what that object affects.
type fieldTest struct {
	t          *testing.T
	original   map[kinds.Key]*kinds.Object
	world      *world
	translator *translate.Translator
	references *references
	proxies    map[string]*node.Proxy
	bare       map[string]map[string]string    // what proxies are sent without a field, by case and parent
	values     map[string][]protoreflect.Value // of fields by their type and name; the last that had an effect comes first
}

// toFront moves an element of a list to its front: what had an effect is likely to have one in the next field too.
func toFront[T any](list []T, i int) {
	x := list[i]
	copy(list[1:], list[:i])
	list[0] = x
}

// valuesOf returns the values to set a field to. Fields of one name and type share a list.
func (f *fieldTest) valuesOf(fd protoreflect.FieldDescriptor) []protoreflect.Value {
	of := fd
	if fd.IsMap() {
		of = fd.MapValue()
	}
	key := fmt.Sprint(fd.Name(), of.Kind())
	switch of.Kind() {
	case protoreflect.EnumKind:
		key += string(of.Enum().FullName())
	case protoreflect.MessageKind:
		key += string(of.Message().FullName())
	}
	if f.values[key] == nil {
		f.values[key] = values(fd)
	}
	return f.values[key]
}

func newFieldTest(t *testing.T) *fieldTest {
	m := mesh.Default()
	m.ExtensionProviders = append(m.ExtensionProviders, &meshv1alpha1.MeshConfig_ExtensionProvider{
		Name: "x", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
			EnvoyExtAuthzGrpc: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{
				Service: "other.a.svc.cluster.local", Port: 80,
			},
		},
	})
	m.ExtensionProviders = append(m.ExtensionProviders, &meshv1alpha1.MeshConfig_ExtensionProvider{
		Name: "tracer", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin{
			Zipkin: &meshv1alpha1.MeshConfig_ExtensionProvider_ZipkinTracingProvider{Service: "other.a.svc.cluster.local", Port: 80},
		},
	})
	f := &fieldTest{
		t: t, original: map[kinds.Key]*kinds.Object{}, world: newWorld(t, m), translator: newTranslator(1 << 24),
		references: &references{seen: map[string][]string{}}, proxies: map[string]*node.Proxy{}, bare: map[string]map[string]string{},
		values: map[string][]protoreflect.Value{},
	}
	changes := objects(t, "world.yaml", read(t, "testdata", "fields", "world.yaml"))
	for _, c := range changes {
		f.original[c.Key] = c.Object
	}
	f.world.apply(changes...)
	for name, n := range map[string]string{
		"server":  `{"id": "sidecar~10.0.0.1~web-0.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes"}}`,
		"client":  `{"id": "sidecar~10.0.0.3~client-0.b~b.svc.cluster.local", "metadata": {"NAMESPACE": "b", "CLUSTER_ID": "Kubernetes"}}`,
		"gateway": `{"id": "router~10.0.0.4~gateway-0.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes"}}`,
		"bare": `{"id": "sidecar~10.0.0.2~web-1.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a", ` +
			`"CLUSTER_ID": "Kubernetes", "INTERCEPTION_MODE": "NONE"}}`,
		"machine": `{"id": "sidecar~10.0.0.9~x.a~a.svc.cluster.local", "metadata": {"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes"}}`,
	} {
		f.proxies[name] = proxy(t, []byte(n))
		f.proxies[name].Capabilities |= node.HTTPStats | node.NetworkStats | node.HTTPPeerMetadata
	}
	return f
}

// config returns the versions of all that the proxies are sent, with one more object or another version of one.
func (f *fieldTest) config(o *kinds.Object) map[string]string {
	return f.sent(f.world.apply(kinds.Change{Key: o.Key, Object: o}))
}

// sent returns the versions of all that the proxies are sent.
func (f *fieldTest) sent(s *snapshot.Snapshot) map[string]string {
	f.translator.Prepare(s)
	versions := map[string]string{}
	for name, p := range f.proxies {
		for resource, r := range f.references.config(f.t, f.translator, s, p) {
			if versions[name+" "+resource] = r.Version; strings.HasPrefix(resource, extensions) {
				versions[name+" "+resource] = string(pluginVersion.ReplaceAll(r.Value(), nil))
			}
		}
	}
	return versions
}

// pluginVersion matches in a WebAssembly filter what says that any field of its object changed.
var pluginVersion = regexp.MustCompile(`ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION..[0-9a-f]{16}`)

// restore ends the setting of fields in an object.
func (f *fieldTest) restore(k kinds.Key) { f.world.apply(kinds.Change{Key: k, Object: f.original[k]}) }

// isNamed reports whether a finding is about a field, or about one that the field is in.
func isNamed(path string, findings []diag.Diagnostic) bool {
	return slices.ContainsFunc(findings, func(d diag.Diagnostic) bool {
		field := strings.TrimPrefix(regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(d.Field, ""), "spec.")
		return field == "" || field == path || strings.HasPrefix(path, field+".")
	})
}

// sameAsDefault has the values of enums that mean what an absent field means, or that have an effect elsewhere, by
// kind, field and value, with the reason.
func sameAsDefault() map[string]string {
	const (
		upgrade   = "the default of the mesh; beside its h2UpgradePolicy UPGRADE the value acts, as TestNoMeshFieldIsIgnored shows"
		both      = "an absent mode means traffic of both sides"
		http      = "an absent type means HTTP"
		topology  = "the default of gateways"
		forwarded = "the default of sidecars"
	)
	m := map[string]string{
		"Sidecar egress.captureMode IPTABLES":                           "the default; the interception mode of the proxy prevails",
		"VirtualService http.redirect.derivePort FROM_PROTOCOL_DEFAULT": "the port that Envoy uses without a port",
		"VirtualService http.corsPolicy.unmatchedPreflights FORWARD":    "an absent field means FORWARD",
		"EnvoyFilter configPatches.applyTo EXTENSION_CONFIG":            "filters ask for it by its name, as TestReference shows",
		"PeerAuthentication mtls.mode PERMISSIVE":                       "the mode of workloads for which no policy has one",
		"Telemetry metrics.overrides.match.metric ALL_METRICS":          "an override without a metric is for all of them",
		"WasmPlugin match.mode CLIENT_AND_SERVER":                       both,
		"TrafficExtension match.mode CLIENT_AND_SERVER":                 both,
		"WasmPlugin type HTTP":                                          http,
		"TrafficExtension wasm.type HTTP":                               http,

		"MeshConfig defaultConfig.tracingServiceName APP_LABEL_AND_NAMESPACE":            "an absent name means the app label and the namespace",
		"MeshConfig defaultConfig.gatewayTopology.forwardClientCertDetails SANITIZE_SET": topology,
		"MeshConfig defaultConfig.proxyHeaders.forwardedClientCert APPEND_FORWARD":       forwarded,
		"MeshConfig pathNormalization.normalization BASE":                                "an absent value means BASE",
		"MeshConfig meshMTLS.minProtocolVersion TLSV1_2":                                 "an absent version means TLS 1.2",
	}
	for _, policy := range []string{"trafficPolicy", "subsets.trafficPolicy"} {
		for _, of := range []string{"", ".portLevelSettings"} {
			m["DestinationRule "+policy+of+".connectionPool.http.h2UpgradePolicy DO_NOT_UPGRADE"] = upgrade
		}
	}
	return m
}

// enum yields the values of a field of an enum but for the one that stands for an absent field, by name.
func (p fieldPath) enum() iter.Seq2[string, protoreflect.Value] {
	return func(yield func(string, protoreflect.Value) bool) {
		fd := p[len(p)-1]
		if fd.IsMap() || fd.Kind() != protoreflect.EnumKind {
			return
		}
		all := fd.Enum().Values()
		for i := range all.Len() {
			if v := all.Get(i); (v.Number() != 0 || fd.HasPresence() || fd.IsList()) &&
				!yield(string(v.Name()), protoreflect.ValueOfEnum(v.Number())) {
				return
			}
		}
	}
}

// acts reports whether a value of a field in an object changes what proxies are sent, compared with the object without
// the field, or is a finding.
func (f *fieldTest) acts(o *kinds.Object, path fieldPath, v protoreflect.Value) bool {
	with := func(set func(protoreflect.Message, protoreflect.FieldDescriptor)) *kinds.Object {
		changed := *o
		spec := proto.Clone(o.Spec.(proto.Message))
		set(path.parent(spec.ProtoReflect()), path[len(path)-1])
		changed.Spec = spec
		return &changed
	}
	changed := with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { setField(m, fd, v) })
	if isNamed(path.String(), catalog.Features().Unsupported(changed)) {
		return true
	}
	key := fmt.Sprintf("%p without %s", o, path)
	if f.bare[key] == nil {
		f.bare[key] = f.config(with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { m.Clear(fd) }))
	}
	return !maps.Equal(f.bare[key], f.config(changed))
}

// effective reports whether setting a field in an object, and nothing but what holds it, changes what proxies are sent,
// or is a finding.
func (f *fieldTest) effective(o *kinds.Object, path fieldPath) bool {
	with := func(set func(protoreflect.Message, protoreflect.FieldDescriptor)) *kinds.Object {
		changed := *o
		spec := proto.Clone(o.Spec.(proto.Message))
		set(path.parent(spec.ProtoReflect()), path[len(path)-1])
		changed.Spec = spec
		return &changed
	}
	key := fmt.Sprintf("%p ", o) + path[:len(path)-1].String()
	list := f.valuesOf(path[len(path)-1])
	for i, v := range list {
		changed := with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { setField(m, fd, v) })
		if isNamed(path.String(), catalog.Features().Unsupported(changed)) {
			return true
		}
		if f.bare[key] == nil {
			f.bare[key] = f.config(with(func(protoreflect.Message, protoreflect.FieldDescriptor) {}))
		}
		if !maps.Equal(f.bare[key], f.config(changed)) {
			toFront(list, i)
			return true
		}
	}
	return false
}

// fieldPath leads from a spec to a field.
type fieldPath []protoreflect.FieldDescriptor

func (p fieldPath) String() string {
	var names []string
	for _, fd := range p {
		names = append(names, fd.JSONName())
	}
	return strings.Join(names, ".")
}

// parent returns the message that holds the field, which it makes where it is not there.
func (p fieldPath) parent(m protoreflect.Message) protoreflect.Message {
	for _, fd := range p[:len(p)-1] {
		switch v := m.Mutable(fd); {
		case fd.IsMap():
			m = v.Map().Mutable(keyOf(fd, v.Map())).Message()
		case fd.IsList():
			if v.List().Len() == 0 {
				v.List().AppendMutable()
			}
			m = v.List().Get(0).Message()
		default:
			m = v.Message()
		}
	}
	return m
}

// keyOf returns the key of a map's entry, or one to make an entry with.
func keyOf(fd protoreflect.FieldDescriptor, m protoreflect.Map) protoreflect.MapKey {
	key := protoreflect.ValueOfString("app").MapKey()
	if fd.MapKey().Kind() == protoreflect.Uint32Kind {
		key = protoreflect.ValueOfUint32(8080).MapKey()
	}
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool { key = k; return false })
	return key
}

// leaves returns the paths of all fields that hold no fields of their own.
func leaves(md protoreflect.MessageDescriptor, path fieldPath) (all []fieldPath) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		to := append(slices.Clip(path), fd)
		m := fd.Message()
		if fd.IsMap() {
			m = fd.MapValue().Message()
		}
		if m != nil && m.ParentFile().Package() != "google.protobuf" && m.Fields().Len() > 0 {
			all = append(all, leaves(m, to)...)
		} else {
			all = append(all, to)
		}
	}
	return all
}

// values returns values to set a field to: for text, those that mean something in some field of the mesh.
func values(fd protoreflect.FieldDescriptor) (list []protoreflect.Value) {
	if fd.IsMap() {
		fd = fd.MapValue()
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		list = append(list, protoreflect.ValueOfBool(true), protoreflect.ValueOfBool(false))
	case protoreflect.EnumKind:
		for i := range fd.Enum().Values().Len() {
			list = append(list, protoreflect.ValueOfEnum(fd.Enum().Values().Get(i).Number()))
		}
	case protoreflect.StringKind:
		for _, s := range []string{
			"x", "web", "v1", "other.a.svc.cluster.local", "10.0.0.7", "10.9.0.0/16", "8088", "a", "b", ".", "./*", "b/*", "HTTP", "TCP",
			"ingress", "mesh", "far", "delegate", "UNAVAILABLE", "unix:///x", "region1/zone2", "POST",
		} {
			list = append(list, protoreflect.ValueOfString(s))
		}
	case protoreflect.BytesKind:
		list = append(list, protoreflect.ValueOfBytes([]byte("x")))
	case protoreflect.Int32Kind:
		list = append(list, protoreflect.ValueOfInt32(503), protoreflect.ValueOfInt32(3))
	case protoreflect.Int64Kind:
		list = append(list, protoreflect.ValueOfInt64(3))
	case protoreflect.Uint32Kind:
		list = append(list, protoreflect.ValueOfUint32(8088), protoreflect.ValueOfUint32(3), protoreflect.ValueOfUint32(302),
			protoreflect.ValueOfUint32(80))
	case protoreflect.Uint64Kind:
		list = append(list, protoreflect.ValueOfUint64(4099))
	case protoreflect.DoubleKind:
		list = append(list, protoreflect.ValueOfFloat64(3))
	case protoreflect.FloatKind:
		list = append(list, protoreflect.ValueOfFloat32(3))
	case protoreflect.MessageKind:
		of := func(all ...proto.Message) {
			for _, m := range all {
				list = append(list, protoreflect.ValueOfMessage(m.ProtoReflect()))
			}
		}
		switch fd.Message().FullName() {
		case "google.protobuf.Duration":
			of(durationpb.New(3e9))
		case "google.protobuf.BoolValue":
			of(wrapperspb.Bool(true), wrapperspb.Bool(false))
		case "google.protobuf.Int32Value":
			of(wrapperspb.Int32(70000))
		case "google.protobuf.UInt32Value":
			of(wrapperspb.UInt32(3))
		case "google.protobuf.Int64Value":
			of(wrapperspb.Int64(3))
		case "google.protobuf.DoubleValue":
			of(wrapperspb.Double(3))
		case "google.protobuf.StringValue":
			of(wrapperspb.String("x"))
		case "google.protobuf.Struct":
			of(&structpb.Struct{}, &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewBoolValue(true)}})
		default:
			list = append(list, protoreflect.Value{}) // an empty message
		}
	}
	return list
}

// setField sets a field to one value, a list to it alone, and a map to one entry. An invalid value is an empty message.
func setField(m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		entries.Set(keyOf(fd, entries), v)
	case fd.IsList():
		m.Clear(fd)
		m.Mutable(fd).List().Append(v)
	case !v.IsValid():
		m.Set(fd, m.NewField(fd))
	default:
		m.Set(fd, v)
	}
}
