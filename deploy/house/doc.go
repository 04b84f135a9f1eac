// Package house holds the rules of this source tree as code: who may import whom, what pure packages must not use,
// where state and goroutines and keys of labels may be. Documents may name only tests that exist, and link only to what
// does. Its test applies the rules to the tree, and plants one violation of each to show that it is caught.
//
// It reads source text only: it neither builds nor runs anything, and its findings name files, so they can be read like
// a compiler's.
package house
