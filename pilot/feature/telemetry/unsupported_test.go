package telemetry

import (
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// TestFormatOfTheMesh checks that a format which has no effect is a finding, and no other is.
func TestFormatOfTheMesh(t *testing.T) {
	for _, c := range []struct {
		encoding meshv1alpha1.MeshConfig_AccessLogEncoding
		format   string
		findings int
	}{
		{meshv1alpha1.MeshConfig_JSON, `{"path": "%PROTOCOL%"}`, 0},
		{meshv1alpha1.MeshConfig_JSON, `[1]`, 1},
		{meshv1alpha1.MeshConfig_JSON, `%PROTOCOL%`, 1},
		{meshv1alpha1.MeshConfig_JSON, ``, 0},
		{meshv1alpha1.MeshConfig_TEXT, `%PROTOCOL%`, 0},
	} {
		m := mesh.Default()
		m.AccessLogEncoding, m.AccessLogFormat = c.encoding, c.format
		found := unsupportedMesh(m, &meshv1alpha1.MeshConfig{AccessLogFormat: c.format})
		if len(found) != c.findings {
			t.Errorf("%v %q: %v", c.encoding, c.format, found)
		}
	}
}
