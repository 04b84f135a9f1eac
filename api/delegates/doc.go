// Package delegates combines the rules of VirtualServices with the rules that delegate to them. It decides which rules
// are left out because their matches lie outside the delegating rule's, and how many rules there may be: a delegate's
// rules are repeated for each rule that delegates to it, and its matches for each match of that rule. It is pure, and
// both the proxies' configuration and the findings come from this calculation.
//
// # Guarantees
//
//   - The size of a delegation is bounded: [TestDelegateSize]. Rules of delegates are in force as in istiod, and a
//     rule without effect is a finding: [TestNarrow], [TestReplaced].
package delegates
