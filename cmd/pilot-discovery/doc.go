// Command pilot-discovery is the control plane. Each command has a package of its own:
//
//	discovery     runs the server
//	inject        adds proxies to a manifest
//	bootstrap     prints what an Envoy needs to connect to a server
//
//	check         checks a cluster, a server or a proxy
//	proxy-status  lists the proxies that are connected to a server
//	pushes        lists what a server has sent lately, and why
//	why           says what happens to a request, and why
//	translate     prints what a proxy would be sent
//	request       prints a page of a server
//	explain       says what a finding means
//
//	validate      prints what is wrong with configuration (package analyze)
//	analyze       prints what is wrong with a cluster, or with files on top of it
//	diff          prints what a change of configuration changes in what proxies are sent
//
//	migrate       says what differs when istiod-lite takes the place of istiod
//
//	token         makes tokens for a server without Kubernetes
//	load          connects simulated proxies to a server
//	version       prints the version (package cmd/version)
//
// Packages cli, env and input have what commands share. Commands turn flags into Options and results into text; the
// work is done in pilot, citadel, galley and injector. Environment variables are read only here, as defaults of flags,
// with one exception: pilot/config/crd reads the variables that name the proxy before an API server.
//
// # Guarantees
//
//   - Findings of a cluster are the same in pages of any size. What a user may not read is a finding:
//     [deploy/e2e/kube.TestAnalyze].
//   - The exit codes and the text of check are fixed: [TestScripts/check].
//   - Each code of findings is explained, and each example in YAML has its finding: [TestCodesAreExplained],
//     [TestExamplesHaveTheirFinding].
//   - Each command is described and has examples that parse; -o, typing mistakes and completions are handled alike:
//     [TestCommandsAreDescribed], [TestOutputFlags], [TestMistakes], [TestCompletion].
//   - The reference in docs is what the code says, and commands and links of documents are right: [TestReference],
//     [TestVariablesAreDescribed], [TestDocuments], [pilot/bootstrap.TestMetricsReference].
//   - A command that finds something exits with 79, a command that fails with 1: [TestScripts].
//   - Texts of proxies and servers, in answers and in errors, can neither change a terminal nor forge a line. Programs
//     that read JSON get the texts unchanged: [TestHostileAnswers], [TestHostileErrors]. An endless answer is refused:
//     [TestEndlessAnswers].
//   - diff predicts what a server pushes: exactly those resources to exactly those proxies, for random changes:
//     [pilot/bootstrap.TestDifferences]. Each resource has the objects that cause it, and each finding that comes or
//     goes is reported: [TestScripts/diff]. With --server-side it makes no change that the API server refuses:
//     [TestServerSide].
//   - why names the rule, its line and why other rules lost: [TestScripts/why]. Real Envoys answer what it says, for
//     the pod and path that it names: [deploy/e2e/traffic.TestAgreesWithEnvoys], also with tokens, and by policies:
//     [deploy/e2e/traffic.TestPolicies], [deploy/e2e/traffic.TestGateway], [deploy/e2e/traffic.TestNormalization], and
//     in worlds that are drawn at random, where why --log explains the lines of their logs:
//     [deploy/e2e/traffic.TestDrawnWorldsAgreeWithEnvoys].
//   - migrate reports what a move from istiod has to change first: [TestScripts/migrate].
package main
