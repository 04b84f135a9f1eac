// Package facts brings answers of I/O into snapshots. The code that turns changes into snapshots does no I/O.
//
// A consumer names the facts that it needs. A Provider asks for them in goroutines of its own, and hands each answer on
// as a change, frozen like an object. So what is made of changes stays a function of the changes.
//
// There are two kinds of consumers:
//
//   - Features, and all else that translates. The facts that they read are a table of the Snapshot. A feature declares
//     by Feature.Facts which facts an object of it needs. The rest follows: ingest has the Provider ask for them, the
//     Builder keeps the answers that some object needs, the Diff and Dirty list those that changed, the proxies of the
//     namespaces whose objects need one are assigned again, and the Selection of a hook has them. What cannot be had is
//     a finding at the field that the feature names.
//   - What comes before the Snapshot keeps the answers in a Table of its own: names of gateways, which ingest turns
//     into networks.
//
// A fact that is missing says so: Value and Get return false. Its consumer must then do what is safe without the fact,
// which for security means to deny. A Provider that fails keeps the last good answer, and Failing returns why it is
// old.
//
// # A new kind of facts
//
// It needs a kinds.Kind of its own, beside kinds.JWKS, that is not in kinds.All: no source has one. It needs a
// Provider, a folder below this one, which a server runs and names in ingest.Parts.Facts. A name is all that a Provider
// is asked by, so it holds everything that the answer depends on. A value that holds a secret must print itself
// redacted.
//
// What the mesh itself answers needs no Provider: the Builder makes the facts of kind ServicePort of the registries.
//
// A Table belongs to the goroutine that commits. It runs no goroutine.
//
// # Guarantees
//
//   - A missing fact is reported as missing: [TestTable].
//   - Providers are asked for what objects need, and no more. A fact that is missing is a finding that says what
//     applies meanwhile: [pilot/ingest.TestFactsFollowObjects].
//   - A fact is in the Snapshot while an object needs it, each change of it is in a Diff, and it reaches the proxies
//     of the namespaces that need it, and no others: [pilot/snapshot.TestFacts],
//     [pilot/translate.TestFeatureIsOneLine], [pilot/translate.TestWhatIsReadMakesDirty].
package facts
