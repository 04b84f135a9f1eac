// Package migrate has the command migrate, which says what differs when istiod-lite replaces istiod, or istiod replaces
// istiod-lite, and makes values of charts for the move.
//
//   - migrate.go, cluster.go, istiod.go, ca.go, environment.go: the verdict about objects of a cluster or of files.
//     Package migration judges the objects of the mesh.
//   - values.go, schema.go, profiles.go, tree.go: the verdict about values, and the values for the charts of this tree.
//   - operator.go, operators.go, wrapped.go, parameters.go: values in IstioOperators, and in objects of tools for
//     deployment.
//   - oldcharts.go: values of Istio's old charts of gateways.
//   - helm.go, running.go, gateways.go, defaults.go, sources.go: values in releases of Helm, and of what runs.
//   - back.go: the verdict about values for Istio's charts.
//
// The command reads. It changes neither objects nor files, and holds what it reads only while it runs.
//
// # Guarantees
//
//   - Each value of a file is among the values for the charts of this tree, or a finding names its line:
//     [TestNothingIsLost].
//   - The charts accept these values: [deploy/charts.TestMigrated].
//   - What a control plane runs with beyond the values of its release is among them: [TestRunning].
//   - The way back loses no value either: [TestThereAndBack], [TestBack].
//   - A release that cannot be read is a finding: [TestBadReleases].
//   - A file of values that is too large, or repeats too much by aliases, is an error, soon: [TestLargeValues].
package migrate
