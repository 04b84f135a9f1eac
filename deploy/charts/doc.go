// Package charts runs Helm on the charts of this tree, for the tests of their templates here and for tests on a real
// API server.
//
// The environment variables HELM4 and KUBECONFORM name the programs. By default they are the ones that make has put
// into .tools. Helm 3 is used too if HELM3 names it, as in `make compat-helm`. The user's own Helm and cluster are not
// read.
//
// # Guarantees
//
//   - The chart grants what the server reads, and nothing more: [TestRules]. The installed charts run the server:
//     [deploy/e2e/charts.TestCharts].
//   - The chart's templates make valid pods: [TestInjection], [deploy/e2e/charts.TestInjected]. Injected pods, run as
//     a kubelet would run them, call one another by mutual TLS: [deploy/e2e/mtls.TestInjectedPods].
//   - A value with a typing mistake is refused, and each accepted value has its effect or is listed in the notes:
//     [TestTypos], [TestNotes], [TestPod]. Names below global are those of all charts of a mesh: [TestGlobalNames].
//   - A release may have the objects of the cluster or of the namespace alone: [TestResourceScope].
//   - The policy of stable objects refuses unstable kinds and fields by name, and nothing else: [TestStablePolicy].
//   - The charts accept the values that the command migrate makes of values for Istio's charts: [TestMigrated].
//   - Alerts and the dashboard are made where they are enabled. Prometheus's engine answers every query of the
//     dashboard and of Istio's over scrapes, and each alert reads metrics that exist: [TestAlerts],
//     [deploy/e2e/boards.TestBoards]. Each alert fires by each fault that it is for, and by no other:
//     [deploy/e2e/boards.TestAlertsFire].
//   - Upgrades keep what the server wrote into webhook configurations, and move a tag without a gap:
//     [deploy/e2e/charts.TestCharts].
package charts
