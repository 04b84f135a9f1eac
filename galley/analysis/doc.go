// Package analysis finds faults between objects that are valid by themselves: references to missing objects, selectors
// that match no workload, ports that do not exist, VirtualServices that compete for a host, and subsets that are
// defined twice. A finding that istioctl analyze has too has the same code.
//
// Each kind of mistake has an Analyzer, in the file of its name; analyzers.go lists them. oneeach.go has three that
// differ in the kind of object. Some give advice: they report what is allowed and seldom intended, and run only if
// Options.Advice is set. testdata/analyzers has the cases of each: to add an Analyzer, write its file, its line in
// analyzers.go and its cases. The annotation galley.istio.io/analyze-suppress of an object lists codes that are not
// reported for it, by their names here or in Istio. Describe has both names.
//
// The other files hold what analyzers share: index.go has the objects by name, host, label and port; selection.go the
// workloads that a selector matches, shared by all objects with that selector.
//
// A finding is an Error if requests fail for certain, and a Warning if traffic may still be right. Objects without any
// Service are only a part of a mesh, so all findings about them are Warnings. Without any workload no selector is
// checked. Findings about Pods that are no endpoints of their Service are made only for objects that do not change by
// themselves (Options.Still), and other findings about Services without endpoints only for a whole mesh
// (Options.Whole).
//
// Run is a pure function that takes time proportional to the objects: it reads no file and no clock, keeps no state and
// runs no goroutine. Its findings have the position of the object; with the file, validation.Positions finds the
// position of the field.
//
// # Guarantees
//
//   - References to nothing are found, and correct ones are not: [TestRun]. The finding is at the field's line:
//     [pilot/bootstrap.TestReferencesAreFollowed].
//   - The cost is proportional to the objects, however many share a selector or a name: [TestLinear]. Comparisons
//     within one object's lists are bounded: [TestComparisonsAreBounded]. An object without effect is reported with
//     each object that precedes it, up to a bound: [TestRivals].
//   - An object that loses to another is a finding that names the winner and the rule of precedence, in any order of
//     arrival: VirtualServices, DestinationRules, Gateways, ServiceEntries by host and by address, Sidecars,
//     Telemetries, PeerAuthentications, ProxyConfigs. Endpoints at addresses of Nodes are findings, except for Pods on
//     the host's network: [TestAnalyzers].
//   - A Service without endpoints is a finding with the reason, where no cluster could add endpoints:
//     [TestServicesWithoutEndpoints]. A policy whose target does not exist is a finding: [TestTargets]. So is an
//     object without effect: [TestObjectsWithoutEffect]. SaysIdle tells which of these findings say that an object
//     reaches no proxy: [TestSaysIdle].
//   - A last good version in force is not analysed as an object of its own: [TestLastGoodVersions].
//   - Advice is given only where it is enabled, and each sort has cases of mistakes and of correct objects:
//     [TestAdviceOnWhatIsRight]. It displaces no error: [TestEachAnalyzerIsBounded], [TestFindingsAreBounded].
//   - The same objects give the same findings in any order: [TestOrder].
//   - Pods with an outdated proxy are a finding, and Nodes of a cluster are read like Nodes in files:
//     [deploy/e2e/kube.TestAnalyze].
package analysis
