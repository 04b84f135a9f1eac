// Package validation parses YAML or JSON text into frozen objects of every kind that the control plane reads. Each
// fault is a finding with file, line, column, field, cause and fix.
//
// A document is decoded in four steps, each in a file of its own:
//
//   - tree.go: the YAML nodes become a tree of plain JSON values that keep their positions. Anchors and merge keys are
//     resolved, within bounds.
//   - schema_proto.go, schema_go.go: the tree is compared with the schema of its kind (the proto descriptor of an Istio
//     kind, the Go type of a Kubernetes kind), so that every fault is found at its position.
//   - document.go: the tree, which now fits the schema, is decoded by protojson or by a strict JSON decoder. The review
//     of an Istio object needs no decoded object: it does so only if protoSchema is in doubt.
//   - one file for each kind or family: rules beyond the schema (ranges, formats, fields that exclude each other).
//     Package lua checks scripts.
//
// Objects that an API server has stored take the same way from a tree that jsontree.go makes; the doc comment of Object
// lists the differences.
//
// A webhook calls Review, which takes the JSON of one object that is about to be stored, and returns all findings about
// it. Review is bounded in time and memory for any input:
//
//	findings, known := validation.Review(limits.Default(), schema.GroupVersionKind{...}, request.Object.Raw)
//	allowed := !validation.HasErrors(findings) // findings of severity Warning become warnings of the answer
//
// Its verdict equals the verdict of Istio's webhook. So a rule has one of four strengths: warn; bad; refuse, an error
// in a review and a warning in force; tolerated().bad, a warning in the review of an API server and an error everywhere
// else.
//
// All faults of an object are reported at once. Faults of meaning are reported even if a type is wrong, unless they
// only follow from that. Types are those of the CustomResourceDefinitions: a file is refused if the API server would
// refuse it.
//
// An object with only warnings is used as it is written. For an object with an error, salvage.go makes an object that
// can be in force instead, by the tables of units.go, and succession.go decides what is in force if there is a last
// good version. The package is pure: it reads no file, no clock and no network, keeps no state and runs no goroutine.
// It does not compare objects with each other. galley/analysis does, and positions.go finds the lines and columns of
// its findings.
//
// # Guarantees
//
//   - A typing mistake in any kind is found at its line and column: [TestOneTypingMistakeForEachKind].
//   - Verdicts equal Istio's webhook, except for the objects that the test's file marks: [TestAgreement]. Files are
//     read as kubectl reads them: [TestTreeIsWhatKubectlReads].
//   - A review of an Istio object takes memory in proportion to its size, says the same each time, for JSON as for
//     YAML, names a field in each finding, and reports everything that a server would not use: [FuzzKinds].
//   - A review finds all that decoding the object would find: [TestDoubt].
//   - A review is answered within bounds of time and memory: [TestReview], [TestReviewIsBounded], [TestNodesOfFiles],
//     [TestRegexBudgetOfAnObject].
//   - An object that asks too much of every proxy is refused, and the finding names the limit: [TestSize].
//   - An object with a wrong field is in force without that field and loses no restriction by it, nor by a field
//     beside the spec or a fault of the metadata: [TestOneWrongField], [TestNothingOpens], [TestFaultsOutsideOfSpec],
//     [TestMisplacedBackendTLSPolicy], [pilot/config/file.TestWrongMetadata].
//   - A server does not start without an object that restricts and whose name or kind cannot be read:
//     [TestDocumentsWithoutName], [TestVitalDocuments], [TestVitalObjects],
//     [pilot/config/file.TestFirstLoadRefusesBrokenSecurity].
//   - Rules that can be read of a new version are in force beside the last good version: [TestLastGood],
//     [TestAllowedByBoth], [TestLastGoodOfAnother].
//   - Hostile values are refused, and unusual values have findings: [TestHostileExpressions], [TestHostileHosts],
//     [TestHostilePatches], [TestTextsOfPatches], [TestOwnHost], [TestOwnPorts], [TestMeaningOfEachField].
package validation
