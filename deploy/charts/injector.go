package charts

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/injector"
)

// Injector returns the server's injector with the ConfigMaps in manifests of the chart istiod. Any finding about them
// is an error.
func Injector(manifests string) (*injector.Injector, error) {
	var m *mesh.Config
	var c *injector.Config
	var findings []diag.Diagnostic
	for doc := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var o corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil || o.Kind != "ConfigMap" {
			continue // another kind
		}
		var more []diag.Diagnostic
		switch {
		case o.Data["mesh"] != "":
			m, more = mesh.Parse("mesh", []byte(o.Data["mesh"]))
		case o.Data[injector.ConfigKey] != "":
			texts := injector.Texts{Config: o.Data[injector.ConfigKey], Values: o.Data[injector.ValuesKey]}
			c, more = injector.Parse("ConfigMap "+o.Name, texts, injector.Functions{})
		}
		findings = append(findings, more...)
	}
	if len(findings) > 0 {
		return nil, fmt.Errorf("the ConfigMaps: %v", findings)
	}
	if m == nil || c == nil {
		return nil, errors.New("there is no mesh configuration, or none of injection")
	}
	i := injector.New(injector.Options{World: injector.MeshOnly{Config: m}, Logger: slog.New(slog.DiscardHandler), Time: time.Minute})
	i.Set(c)
	return i, nil
}
