package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
)

// TestNoMeshFieldIsIgnored sets each field of the mesh configuration alone. Then the bytes of some proxy change, or a
// finding names the field. Some fields act elsewhere: those change no bytes, and no finding names them.
func TestNoMeshFieldIsIgnored(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	const agent = "the proxy's agent, and what injects it: neither is part of the control plane"
	elsewhere := map[string]string{
		"configSources.address":     "ingest: where objects come from",
		"configSources.tlsSettings": "ingest: how a control plane is called; mcp refuses what it does not support",
		"discoverySelectors":        "ingest: which objects count",
		"enablePrometheusMerge":     agent,
		"ingressClass":              "derive/ingress: which Ingresses count",
		"ingressControllerMode":     "derive/ingress: which Ingresses count",
		"ingressSelector":           "derive/ingress: which proxies serve Ingresses",
		"ingressService":            "derive/ingress: which proxies serve Ingresses, and by what address",
	}
	for _, field := range []string{
		"configPath", "binaryPath", "serviceCluster", "drainDuration", "discoveryAddress", "discoveryRefreshDelay", "zipkinAddress",
		"statsdUdpAddress", "envoyMetricsServiceAddress", "proxyAdminPort", "availabilityZone", "controlPlaneAuthPolicy",
		"customConfigFile", "statNameLength",
		"concurrency", "proxyBootstrapTemplatePath", "interceptionMode", "sds", "envoyAccessLogService", "envoyMetricsService", "proxyMetadata",
		"runtimeValues", "statusPort", "extraStatTags", "terminationDrainDuration", "meshId", "readinessProbe", "proxyStatsMatcher",
		"holdApplicationUntilProxyStarts", "caCertificatesPem", "image", "fileFlushInterval", "fileFlushMinSizeKb", "statsCompression",
		"tracing.zipkin", "tracing.lightstep", "tracing.datadog", "tracing.stackdriver", "tracing.openCensusAgent", "tracing.tlsSettings",
		// runtime values of the bootstrap
		"privateKeyProvider", "connectionSettings.listenerConnectionLimit", "connectionSettings.globalDownstreamConnectionLimit",
	} {
		elsewhere["defaultConfig."+field] = agent
	}
	f := newMeshFieldTest(t)
	listed := map[string][]fieldPath{}
	for _, path := range leaves(mesh.Default().ProtoReflect().Descriptor(), nil) {
		if testing.Short() && path[0].JSONName() == "extensionProviders" { // most of the fields, of which TestReference has many
			continue
		}
		acts := false
		for field := range elsewhere {
			if path.String() == field || strings.HasPrefix(path.String(), field+".") {
				acts, listed[field] = true, append(listed[field], path)
			}
		}
		if !acts && !slices.ContainsFunc(f.casesOf(path), func(c *mesh.Config) bool { return f.effective(c, path) }) {
			t.Errorf("%s: it changes nothing, and no finding names it", path)
		}
		if acts {
			continue
		}
		for name, v := range path.enum() {
			if of := "MeshConfig " + path.String() + " " + name; sameAsDefault()[of] == "" && !slices.ContainsFunc(f.casesOf(path),
				func(c *mesh.Config) bool { return f.acts(c, path, v) }) {
				t.Errorf("%s: the value changes nothing, and no finding names it", of)
			}
		}
	}
	f.actElsewhere(listed)
	for field := range elsewhere {
		if listed[field] == nil {
			t.Errorf("%s is listed, and no such field exists", field)
		}
	}
	if found := catalog.Features().UnsupportedMesh(mesh.Default()); len(found) > 0 {
		t.Errorf("findings about the default configuration: %v", found)
	}
}

// meshFieldTest is a mesh of two clusters, and the configurations that fields are set in.
type meshFieldTest struct {
	*fieldTest
	cases []*mesh.Config
}

func newMeshFieldTest(t *testing.T) *meshFieldTest {
	f := &meshFieldTest{newFieldTest(t), []*mesh.Config{mesh.Default()}}
	more := objects(t, "mesh-world.yaml", read(t, "testdata", "fields", "mesh-world.yaml"))
	remote := inCluster("remote", objects(t, "mesh-remote.yaml", read(t, "testdata", "fields", "mesh-remote.yaml")))
	f.world.apply(slices.Concat(more, remote)...)
	for text := range strings.SplitSeq(string(read(t, "testdata", "fields", "MeshConfig.yaml")), "\n---\n") {
		c, found := mesh.Parse("MeshConfig.yaml", []byte(text))
		if len(found) > 0 {
			t.Fatal(found)
		}
		f.cases = append(f.cases, c)
	}
	return f
}

// casesOf returns the configurations to set a field in: for a field of an extension provider those with such a
// provider, if there are any.
func (f *meshFieldTest) casesOf(path fieldPath) []*mesh.Config {
	if len(path) < 3 || path[0].JSONName() != "extensionProviders" {
		return f.cases
	}
	var list []*mesh.Config
	for _, c := range f.cases {
		if all := c.GetExtensionProviders(); all[0].ProtoReflect().Has(path[1]) {
			list = append(list, c)
		}
	}
	if list == nil {
		return f.cases[:1]
	}
	return list
}

// config returns the versions of all that the proxies are sent with a mesh configuration.
func (f *meshFieldTest) config(c *mesh.Config) map[string]string {
	f.world.builder.SetMesh(c)
	return f.sent(f.world.apply())
}

// actElsewhere sets the fields that act elsewhere, all together. Each is set last once: of some, one excludes another.
func (f *meshFieldTest) actElsewhere(listed map[string][]fieldPath) {
	before := f.config(mesh.Default())
	fields := slices.Sorted(maps.Keys(listed))
	for i, last := range fields {
		c := mesh.Default()
		for _, field := range append(slices.Delete(slices.Clone(fields), i, i+1), last) {
			for _, path := range listed[field] {
				fd := path[len(path)-1]
				all := values(fd)
				setField(path.parent(c.ProtoReflect()), fd, all[i%len(all)])
			}
		}
		if catalog.Features().UnsupportedMesh(c) == nil && maps.Equal(before, f.config(c)) {
			continue
		}
		f.t.Error("fields that are listed as acting elsewhere change bytes, or a finding names them")
		for _, path := range slices.Concat(slices.Collect(maps.Values(listed))...) {
			if f.effective(mesh.Default(), path) {
				f.t.Errorf("%s is one of them", path)
			}
		}
		return
	}
}

// acts reports whether a value of a field changes what proxies are sent, compared with the configuration without the
// field, or is a finding.
func (f *meshFieldTest) acts(c *mesh.Config, path fieldPath, v protoreflect.Value) bool {
	with := func(set func(protoreflect.Message, protoreflect.FieldDescriptor)) *mesh.Config {
		changed := &mesh.Config{MeshConfig: proto.CloneOf(c.MeshConfig)}
		set(path.parent(changed.ProtoReflect()), path[len(path)-1])
		return changed
	}
	changed := with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { setField(m, fd, v) })
	if isNamed(path.String(), catalog.Features().UnsupportedMesh(changed)) {
		return true
	}
	key := fmt.Sprintf("%p without %s", c, path)
	if f.bare[key] == nil {
		f.bare[key] = f.config(with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { m.Clear(fd) }))
	}
	return !maps.Equal(f.bare[key], f.config(changed))
}

// effective reports whether setting a field in a configuration, and nothing but what holds it, changes what proxies are
// sent, or is a finding.
func (f *meshFieldTest) effective(c *mesh.Config, path fieldPath) bool {
	with := func(set func(protoreflect.Message, protoreflect.FieldDescriptor)) *mesh.Config {
		changed := &mesh.Config{MeshConfig: proto.CloneOf(c.MeshConfig)}
		set(path.parent(changed.ProtoReflect()), path[len(path)-1])
		return changed
	}
	key := fmt.Sprintf("%p ", c) + path[:len(path)-1].String()
	list := f.valuesOf(path[len(path)-1])
	for i, v := range list {
		changed := with(func(m protoreflect.Message, fd protoreflect.FieldDescriptor) { setField(m, fd, v) })
		if isNamed(path.String(), catalog.Features().UnsupportedMesh(changed)) {
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
