// Package delegates says what becomes of the rules of VirtualServices to which others delegate: which are left out
// because they match what the delegating rule does not, and how many there may be, since the rules of a delegate are
// there once for each rule that delegates to it, and its matches once for each match of that rule. It is pure: what
// is left out, and the finding about it, come from the same calculation.
//
// # Guarantees
//
//   - The size of a delegation is bounded: [TestDelegateSize]. Rules of delegates are in force as in istiod, and a
//     rule without effect is a finding: [TestNarrow], [TestReplaced].
package delegates
