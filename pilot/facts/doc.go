// Package facts brings results of I/O into snapshots. The code that turns changes into snapshots does no I/O.
//
// A consumer names the facts that it needs. A Provider gets them in goroutines of its own, and reports each answer as a
// change, immutable like an object. So a snapshot is a function of the changes alone.
//
// There are two kinds of consumers:
//
//   - Features and the rest of the translation. The facts that they read are a table of the Snapshot. A feature
//     declares by Feature.Facts which facts an object of its kinds needs. The rest is generic: ingest tells the
//     Provider what is needed, the Builder keeps the answers that some object needs, Diff and Dirty list the answers
//     that changed, the proxies of the namespaces whose objects need one are reassigned, and the Selection of a hook
//     contains the facts. A fact that is unavailable is a finding at the field that the feature names.
//   - Consumers that run before the Snapshot is built keep the answers in a Table. Names of gateways, which ingest
//     turns into networks, are such facts.
//
// Value and Get return false for a fact that is missing. The consumer must then do what is safe without the fact, which
// for security means to deny. A Provider that fails keeps the last good answer, and Failing returns why it is old.
//
// # Adding a kind of facts
//
// Add a kinds.Kind beside kinds.JWKS. It is not in kinds.All, because no source has objects of it. Add a Provider in a
// folder below this one, which a server runs and lists in ingest.Parts.Facts. The name is all that a Provider gets, so
// it must contain everything that the answer depends on. A value that contains a secret must print itself redacted.
//
// Facts about the mesh itself need no Provider: the Builder makes the facts of kind ServicePort from the registries.
//
// A Table belongs to the goroutine that commits. The package starts no goroutine.
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
