// Package delegates says what becomes of the rules of VirtualServices to which others delegate: which are left out
// because they match what the delegating rule does not, and how many there may be, since the rules of a delegate are
// there once for each rule that delegates to it, and its matches once for each match of that rule. It is pure: what
// is left out, and the finding about it, come from the same calculation.
package delegates
