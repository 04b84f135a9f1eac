package mesh

import (
	"slices"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Parse reads a MeshConfig over the defaults. name says in findings where the document came from. The Config is nil if any finding is an Error.
func Parse(name string, yaml []byte) (*Config, []diag.Diagnostic) {
	return ParseOver(Default(), name, yaml)
}

// ParseOver reads a MeshConfig over another, which stays as it is: fields that the document sets replace the base's, messages and maps are merged, lists are
// replaced whole.
func ParseOver(base *Config, name string, yaml []byte) (*Config, []diag.Diagnostic) {
	c := &Config{proto.CloneOf(base.MeshConfig)}
	d := &document{file: name, object: "MeshConfig"}
	d.decode(yaml, c.ProtoReflect())
	for _, p := range defaultProviders() {
		if c.Provider(p.Name) == nil {
			c.ExtensionProviders = append(c.ExtensionProviders, p)
		}
	}
	if !d.failed() {
		d.checkConfig(c)
	}
	if d.failed() {
		return nil, d.findings
	}
	return c, d.findings
}

// ParseNetworks reads a MeshNetworks. The Networks are nil if any finding is an Error.
func ParseNetworks(name string, yaml []byte) (*Networks, []diag.Diagnostic) {
	n := &Networks{&meshv1alpha1.MeshNetworks{}}
	d := &document{file: name, object: "MeshNetworks"}
	d.decode(yaml, n.ProtoReflect())
	if !d.failed() {
		d.checkNetworks(n)
	}
	if d.failed() {
		return nil, d.findings
	}
	return n, d.findings
}

func (d *document) failed() bool {
	return slices.ContainsFunc(d.findings, func(f diag.Diagnostic) bool { return f.Severity == diag.Error })
}
