// Package deploymenttest reads the Gateways of testdata/gateways.txtar, with what istiod applied for them, and compares
// it with what is made here. Tests of templates share it.
package deploymenttest
