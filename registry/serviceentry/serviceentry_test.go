package serviceentry_test

import (
	"os"
	"testing"

	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

var update = world.UpdateFlag()

func start() (registry.Registry, func() string) {
	r := serviceentry.New(serviceentry.Options{Cluster: "Kubernetes"})
	return r, func() string { return "" }
}

func TestTranscripts(t *testing.T) { world.Transcripts(t, "*.txtar", update, start) }

func TestHistories(t *testing.T) {
	text, err := os.ReadFile("testdata/versions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	world.Histories(t, world.Parse(t, string(text)), start)
}
