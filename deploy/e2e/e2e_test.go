package e2e

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestDelta leaves the virtual hosts to TestOldestEnvoy if -short is given.
func TestDelta(t *testing.T) {
	m := testMesh(t, delta)
	t.Run("Split", func(t *testing.T) { testSplit(t, m) })
	if !testing.Short() {
		t.Run("Hosts", func(t *testing.T) { testHosts(t, m) })
	}
}

// TestStateOfTheWorld leaves the shares of a split to TestDelta if -short is given.
func TestStateOfTheWorld(t *testing.T) {
	m := testMesh(t, sotw)
	if !testing.Short() {
		t.Run("Split", func(t *testing.T) { testSplit(t, m) })
	}
}

// TestOldestEnvoy tries virtual hosts by themselves on the first Envoy that takes them.
func TestOldestEnvoy(t *testing.T) {
	m := newMesh(t, delta, suite.OldestEnvoyVar)
	t.Run("Hosts", func(t *testing.T) { testHosts(t, m) })
}

// done collects the cells of both modes for the process outside.
var done = results{}

// testMesh runs what both modes share against one mesh, because its pods are the expensive part, and returns the mesh.
func testMesh(t *testing.T, mode string) *mesh {
	m := newMesh(t, mode, suite.EnvoyVar)
	cells := map[string]cell{}
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) { cells[p.name] = p.fill(t, m) })
	}
	done[mode] = cells
	if err := done.save(); err != nil {
		t.Error(err)
	}
	t.Run("Subsets", func(t *testing.T) { testSubsets(t, m) })
	t.Run("Endpoints", func(t *testing.T) { testEndpoints(t, m) })
	t.Run("BrokenFile", func(t *testing.T) { testBrokenFile(t, m) })
	t.Run("Restart", func(t *testing.T) { testRestart(t, m) })
	return m
}
