package mesh

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Parse reads a MeshConfig over the defaults. name is the document's name in findings. The Config is nil if any finding
// is an Error.
func Parse(name string, yaml []byte) (*Config, []diag.Diagnostic) {
	return ParseOver(Default(), name, yaml)
}

// ParseOver reads a MeshConfig over another one, which it does not change. A field that the document sets replaces the
// base's; messages, maps and lists are replaced as a whole, except defaultConfig, its proxyMetadata and proxyHeaders,
// and defaultProviders, which are merged.
func ParseOver(base *Config, name string, yaml []byte) (*Config, []diag.Diagnostic) {
	c, findings := Salvage(base, name, yaml)
	if failed(findings) {
		return nil, findings
	}
	return c, findings
}

// Salvage is ParseOver for a document without a previous good version. It leaves out parts that restrict nothing:
// unknown fields, which a newer release may have, unless their names resemble other fields', providers with an error,
// and fields with an error that are in sparedFields. The Config is nil if there is any other error.
func Salvage(base *Config, name string, yaml []byte) (*Config, []diag.Diagnostic) {
	c := &Config{MeshConfig: proto.CloneOf(base.MeshConfig), Compliance: base.Compliance}
	d := &document{file: name, object: "MeshConfig"}
	d.decode(yaml, c.ProtoReflect())
	if d.fatal() {
		return nil, d.findings
	}
	broken := map[int]bool{} // indexes in extensionProviders
	for i := range c.ExtensionProviders {
		broken[i] = slices.ContainsFunc(d.findings, func(f diag.Diagnostic) bool {
			return isError(f) && f.Code != "UnknownField" && strings.HasPrefix(f.Field, fmt.Sprintf("extensionProviders[%d]", i))
		})
	}
	c.addDefaultProviders()
	d.checkConfig(c)
	for _, i := range d.checkFormats(c) {
		broken[i] = true
	}
	if d.fatal() {
		return nil, d.findings
	}
	c.ExtensionProviders = usable(c.ExtensionProviders, broken)
	c.addDefaultProviders()
	for _, f := range d.findings {
		if isError(f) && spared(f.Field) {
			restore(c.ProtoReflect(), base.ProtoReflect(), strings.Split(f.Field, "."))
		}
	}
	return c, d.findings
}

func (c *Config) addDefaultProviders() {
	for _, p := range defaultProviders() {
		if c.Provider(p.Name) == nil {
			c.ExtensionProviders = append(c.ExtensionProviders, p)
		}
	}
}

// vital reports whether a field may restrict something and cannot be left out by itself.
func vital(path string) bool {
	return !spared(path) && !strings.HasPrefix(path, "extensionProviders") && !strings.HasPrefix(path, "defaultConfig")
}

// fatal reports whether an error is about a part that cannot be left out.
func (d *document) fatal() bool {
	return d.misspelt || slices.ContainsFunc(d.findings, func(f diag.Diagnostic) bool {
		return isError(f) && f.Code != "UnknownField" && !spared(f.Field) && !strings.HasPrefix(f.Field, "extensionProviders[")
	})
}

// sparedFields are fields that affect only logs, traces, metrics, timeouts and the choice among the endpoints of a
// service, and no policy or encryption.
var sparedFields = []string{
	"accessLogEncoding", "accessLogFile", "accessLogFormat", "connectTimeout", "defaultProviders", "disableEnvoyListenerLog", "dnsRefreshRate",
	"enableEnvoyAccessLogService", "enableTracing", "localityLbSetting", "tcpKeepalive", "zoneAwareLbSetting",
	"defaultConfig.concurrency", "defaultConfig.drainDuration", "defaultConfig.envoyAccessLogService", "defaultConfig.envoyMetricsService",
	"defaultConfig.extraStatTags", "defaultConfig.fileFlushInterval", "defaultConfig.fileFlushMinSizeKb", "defaultConfig.proxyStatsMatcher",
	"defaultConfig.statNameLength", "defaultConfig.statsdUdpAddress", "defaultConfig.terminationDrainDuration", "defaultConfig.tracing",
	"defaultConfig.zipkinAddress",
}

// spared reports whether a field is one of sparedFields or below one.
func spared(path string) bool {
	return slices.ContainsFunc(sparedFields, func(f string) bool {
		rest, ok := strings.CutPrefix(path, f)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// restore sets a field of m to its value in base. A list or a map is restored as a whole.
func restore(m, base protoreflect.Message, path []string) {
	name, _, whole := strings.Cut(path[0], "[")
	fd := m.Descriptor().Fields().ByJSONName(name)
	switch {
	case fd == nil:
	case len(path) > 1 && !whole && nested(fd) && m.Has(fd):
		restore(m.Mutable(fd).Message(), base.Get(fd).Message(), path[1:])
	case base.Has(fd):
		m.Set(fd, base.Get(fd))
	default:
		m.Clear(fd)
	}
}

// usable returns the providers that have a name, a kind and no error. If several have one name, the last replaces the
// first, and if one of them cannot be used, none is.
func usable(list []*meshv1alpha1.MeshConfig_ExtensionProvider, broken map[int]bool) []*meshv1alpha1.MeshConfig_ExtensionProvider {
	bad := map[string]bool{"": true}
	var out []*meshv1alpha1.MeshConfig_ExtensionProvider
	for i, p := range list {
		bad[p.GetName()] = bad[p.GetName()] || broken[i] || p.GetProvider() == nil
		if at := slices.IndexFunc(out, func(o *meshv1alpha1.MeshConfig_ExtensionProvider) bool { return o.GetName() == p.GetName() }); at >= 0 {
			out[at] = p
			continue
		}
		out = append(out, p)
	}
	return slices.DeleteFunc(out, func(p *meshv1alpha1.MeshConfig_ExtensionProvider) bool { return bad[p.GetName()] })
}

// Locate returns the position at which a MeshConfig sets a field, and reports whether it does. field has the form of
// findings.
func Locate(yaml []byte, field string) (line, column int, ok bool) {
	d := &document{}
	d.decode(yaml, new(meshv1alpha1.MeshConfig).ProtoReflect())
	if n := d.at[field]; n != nil {
		return n.Line, n.Column, true
	}
	return 0, 0, false
}

// ParseNetworks reads a MeshNetworks. The Networks are nil if any finding is an Error.
func ParseNetworks(name string, yaml []byte) (*Networks, []diag.Diagnostic) {
	n := &Networks{&meshv1alpha1.MeshNetworks{}}
	d := &document{file: name, object: "MeshNetworks"}
	d.decode(yaml, n.ProtoReflect())
	if !failed(d.findings) {
		d.checkNetworks(n)
	}
	if failed(d.findings) {
		return nil, d.findings
	}
	return n, d.findings
}

func failed(findings []diag.Diagnostic) bool {
	return slices.ContainsFunc(findings, isError)
}

func isError(f diag.Diagnostic) bool { return f.Severity == diag.Error }

// SalvageProxyConfig reads a ProxyConfig, as in annotations of pods, over another one, which it does not change. It
// leaves out unknown fields with a warning, because an annotation may be older or newer than this release. It returns
// nil if there is any other error.
func SalvageProxyConfig(base *meshv1alpha1.ProxyConfig, yaml []byte) (*meshv1alpha1.ProxyConfig, []diag.Diagnostic) {
	p := proto.CloneOf(base)
	d := &document{object: "ProxyConfig"}
	d.decode(yaml, p.ProtoReflect())
	for i := range d.findings {
		if f := &d.findings[i]; f.Code == "UnknownField" {
			f.Severity, f.Message = diag.Warning, f.Message+", so it is ignored"
		}
	}
	if failed(d.findings) {
		return nil, d.findings
	}
	return p, d.findings
}
