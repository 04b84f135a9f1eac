package clusters

import (
	"context"
	"testing"
)

// TestClusters runs all tests on one mesh, in order, because clusters and pods cost seconds.
func TestClusters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := newMesh(ctx, t)
	m.serve(ctx, t, m.export(t), "")
	m.own = m.run(ctx, t, firstCluster, "", true, func(name string) bool { return name != "client-sotw" })
	part := func(name string, test func(*testing.T, *mesh)) {
		if !t.Run(name, func(t *testing.T) { test(t, m) }) {
			t.FailNow()
		}
	}
	part("moves", testMoves)
	part("changes", testChanges)
	part("killed", testKilled)
	part("two clusters", testTwoClusters)
}
