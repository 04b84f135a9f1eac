package failclosed

import "testing"

// TestFiles runs the rows of files in the config directory, of any content.
func TestFiles(t *testing.T) {
	t.Parallel()
	newGroup(t).runAll(t, fileRows())
}

// TestObjects runs the rows of kinds, in files of the config directory.
func TestObjects(t *testing.T) {
	t.Parallel()
	newGroup(t).runAll(t, objectRows())
}

// TestPolicies runs the rows of objects that need other objects.
func TestPolicies(t *testing.T) {
	t.Parallel()
	newGroup(t).runAll(t, policyRows())
}

// TestGateways runs the rows of gateways.
func TestGateways(t *testing.T) {
	t.Parallel()
	newGroup(t, asGateway).runAll(t, gatewayRows())
}

// TestMeshConfig runs the rows of the mesh configuration.
func TestMeshConfig(t *testing.T) {
	t.Parallel()
	newGroup(t).runAll(t, meshRows())
}

// TestNetworks runs the rows of the networks.
func TestNetworks(t *testing.T) {
	t.Parallel()
	newGroup(t).runAll(t, networkRows())
}

func (g *group) runAll(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.input, func(t *testing.T) { g.run(t, r) })
	}
}
