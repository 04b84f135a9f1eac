package serviceentry_test

import (
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
	world.Histories(t, world.ParseFile(t, "testdata/versions.yaml"), start)
}
