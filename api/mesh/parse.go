package mesh

import (
	"slices"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Parse reads a MeshConfig over the defaults. name says in findings where the document came from. The Config is nil if
// any finding is an Error.
func Parse(name string, yaml []byte) (*Config, []diag.Diagnostic) {
	return ParseOver(Default(), name, yaml)
}

// ParseOver reads a MeshConfig over another, which stays as it is: fields that the document sets replace the base's,
// messages and maps are merged, lists are replaced whole.
func ParseOver(base *Config, name string, yaml []byte) (*Config, []diag.Diagnostic) {
	c, findings := Salvage(base, name, yaml)
	if failed(findings) {
		return nil, findings
	}
	return c, findings
}

// Salvage is ParseOver for where nothing better is known: it leaves out fields that do not exist, which a newer release
// may have. The Config is nil if anything else is wrong.
func Salvage(base *Config, name string, yaml []byte) (*Config, []diag.Diagnostic) {
	c := &Config{MeshConfig: proto.CloneOf(base.MeshConfig)}
	d := &document{file: name, object: "MeshConfig"}
	d.decode(yaml, c.ProtoReflect())
	for _, p := range defaultProviders() {
		if c.Provider(p.Name) == nil {
			c.ExtensionProviders = append(c.ExtensionProviders, p)
		}
	}
	if !failed(d.beyond()) {
		d.checkConfig(c)
	}
	if failed(d.beyond()) {
		return nil, d.findings
	}
	return c, d.findings
}

// Locate returns where a MeshConfig sets a field, and reports whether it does. field is named as findings name it.
func Locate(yaml []byte, field string) (line, column int, ok bool) {
	d := &document{}
	d.decode(yaml, new(meshv1alpha1.MeshConfig).ProtoReflect())
	if n := d.at[field]; n != nil {
		return n.Line, n.Column, true
	}
	return 0, 0, false
}

// beyond returns the findings without those of unknown fields.
func (d *document) beyond() []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(d.findings), func(f diag.Diagnostic) bool { return f.Code == "UnknownField" })
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
	return slices.ContainsFunc(findings, func(f diag.Diagnostic) bool { return f.Severity == diag.Error })
}

// SalvageProxyConfig reads a ProxyConfig, as annotations of pods have it, over another, which stays as it is. It leaves
// out fields that do not exist, which are warnings: an annotation outlives releases. It is nil if anything else is
// wrong.
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
