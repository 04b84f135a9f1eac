package failclosed

import "testing"

// TestFiles runs the rows of files in the config directory, whatever they hold.
func TestFiles(t *testing.T) {
	t.Parallel()
	newGroup(t, 0, false).runAll(t, fileRows())
}

// TestObjects runs the rows of kinds, in files of the config directory.
func TestObjects(t *testing.T) {
	t.Parallel()
	newGroup(t, 1, false).runAll(t, objectRows())
}

// TestPolicies runs the rows of objects that need others beside them.
func TestPolicies(t *testing.T) {
	t.Parallel()
	newGroup(t, 4, false).runAll(t, policyRows())
}

// TestGateways runs the rows of gateways.
func TestGateways(t *testing.T) {
	t.Parallel()
	newGroup(t, 5, true).runAll(t, gatewayRows())
}

// TestMeshConfig runs the rows of the mesh configuration.
func TestMeshConfig(t *testing.T) {
	t.Parallel()
	newGroup(t, 2, false).runAll(t, meshRows())
}

// TestNetworks runs the rows of the networks.
func TestNetworks(t *testing.T) {
	t.Parallel()
	newGroup(t, 8, false).runAll(t, networkRows())
}

func (g *group) runAll(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.input, func(t *testing.T) { g.run(t, r) })
	}
}
