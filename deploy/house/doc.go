// Package house holds the rules of this source tree as code: who may import whom, what the pure rooms must not touch,
// and the habits that keep state and goroutines in known places. Its test applies them to the tree, and plants one
// violation of each to show that it is caught.
//
// It reads source text only: it neither builds nor runs anything, and its findings name files, so they can be read like
// a compiler's.
package house
