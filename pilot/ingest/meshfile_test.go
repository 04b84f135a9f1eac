package ingest

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestMeshFileFindings has a name that is first no file, then absent, and then a file: it is a finding only at first.
func TestMeshFileFindings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mesh")
	m := &meshFiles{
		logger: slog.New(slog.DiscardHandler), paths: map[string]string{"mesh": path}, limit: 1 << 20,
		data: map[string]string{}, wrong: map[string]error{},
	}
	must.Succeed(t, os.Mkdir(path, 0o700))
	if m.readOne("mesh", path) || len(m.Findings()) != 1 {
		t.Errorf("a directory: %v", m.Findings())
	}
	must.Succeed(t, os.Remove(path))
	if m.readOne("mesh", path) || len(m.Findings()) != 0 {
		t.Errorf("no file: %v", m.Findings())
	}
	must.Succeed(t, os.WriteFile(path, []byte("{}"), 0o600))
	if !m.readOne("mesh", path) || len(m.Findings()) != 0 || m.data["mesh"] != "{}" {
		t.Errorf("a file: %v %q", m.Findings(), m.data["mesh"])
	}
}
