// Package analysis finds what is wrong between objects that are each right by themselves: references that lead nowhere,
// selectors that match no workload, ports that do not exist, VirtualServices that compete for a host, and subsets that
// are defined twice. Codes are those of istioctl analyze where it has the same finding.
//
// Each sort of mistake has an Analyzer, in a file of its own; analyzers.go lists them. Some give advice: what they
// report is allowed and seldom meant. They run where Options.Advice is set. testdata/analyzers has the cases of each of
// these: to add an Analyzer, write its file, its line in analyzers.go and its cases. The annotation
// galley.istio.io/analyze-suppress of an object names codes that are not reported of it, as they are here or as Istio
// has them: Describe says both.
//
//   - index.go: what objects are looked up by.
//   - selection.go: what a selector matches, once for all objects that have it.
//   - virtualservice.go, destinationrule.go, selectors.go, ports.go, endpoints.go: what each of these refers to.
//   - pods.go, noeffect.go: addresses of Pods, and objects that stand where nobody reads them.
//   - nodeaddresses.go, resolution.go: endpoints at addresses of Nodes, and names that proxies do not resolve.
//   - targets.go: what policies apply to.
//   - conflicts.go, connectionroutes.go, rivalentries.go, precedence.go: VirtualServices that share a host, a server
//     name or a port; ServiceEntries that share a host or an address; by which rule one of two objects comes first.
//   - patches.go, proxyimages.go: patches of EnvoyFilters; images of proxies.
//
// A finding is an Error where requests fail for certain, and a Warning where traffic may still be right. Objects
// without any Service are a part of a mesh only: all findings about them are Warnings. Without any workload no selector
// is judged. Why the Pods of a Service are no endpoints is judged where no cluster changes them, and what else a
// Service without endpoints lacks where the objects are the whole mesh.
//
// Run is a pure function in time proportional to the objects: it reads no file and no clock, keeps no state and runs no
// goroutine. Its findings name the object's own position; whoever can read the file finds the field's with
// validation.Positions.
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
//     object without effect: [TestObjectsWithoutEffect].
//   - A last good version in force is not analysed as an object of its own: [TestLastGoodVersions].
//   - Advice is given only where it is enabled, and each sort has cases of mistakes and of correct objects:
//     [TestAdviceOnWhatIsRight]. It displaces no error: [TestEachAnalyzerIsBounded], [TestFindingsAreBounded].
//   - The same objects give the same findings in any order: [TestOrder].
//   - Pods with an outdated proxy are a finding, and Nodes of a cluster are read like Nodes in files:
//     [deploy/e2e/kube.TestAnalyze].
package analysis
