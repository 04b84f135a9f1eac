// Package settings is the table of the settings of Istio 1.31, and of what each does here: environment variables of
// istiod and of its agent, annotations and labels, and values of Istio's charts. Everything that names settings without
// effect reads it: the server's log, the agent, analyze, migrate, and the reference in docs.
//
//   - environment.txt: variables of istiod, as NAME=DEFAULT
//   - agent.txt: variables of the agent of a proxy
//   - metadata.txt: annotations and labels, as annotation:NAME and label:NAME
//   - values.txt: values of charts, as CHART:VALUE
//   - settings.go: how these files are read
//
// A line that begins with a semicolon is a comment. A line that begins with one of these marks begins a section, and
// the rest of it is the reason for all rows of the section:
//
//	=  it has an effect
//	+  istiod's default is always in force here, so that another value has no effect
//	~  it has no effect, and nothing in a mesh depends on it
//	!  it has no effect, and a mesh that sets it behaves in another way
//	>  it has its effect in a place that the reason names
//	-  it has another meaning here, and must be left out
//	x  any value but the default is refused
//
// The package is pure and has no state.
//
// # Guarantees
//
//   - Each annotation and label of Istio's API is in the table. Code of this tree reads each one with an effect:
//     [TestMetadata].
//   - Each variable that the documentation of istiod and of its agent has is in the table, with its default:
//     [TestVariablesAsIstio].
//   - docs/migrate.md says of settings that are new in istiod 1.27 to 1.32 what the table says:
//     [cmd/pilot-discovery.TestWhatIstiodHas].
//   - Each setting is in the table once, with a reason unless it has an effect: [TestTable].
//   - Each value of Istio's charts has a row. One that works changes what the charts of this tree render, and the
//     others are refused by name, or the notes of the installation name them: [deploy/e2e/charts.TestValuesOfIstio],
//     [deploy/charts.TestValuesWithoutEffect].
package settings
