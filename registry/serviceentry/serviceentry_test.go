package serviceentry_test

import (
	"os"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

var update = world.UpdateFlag()

func start() (registry.Registry, func() string) {
	r := serviceentry.New(serviceentry.Options{Cluster: "Kubernetes", Network: func(address string) string {
		if strings.HasPrefix(address, "10.9.") {
			return "far"
		}
		return ""
	}})
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
