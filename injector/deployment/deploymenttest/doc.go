// Package deploymenttest compares the objects that an injector makes for the Gateways of testdata/gateways.txtar with
// the objects that istiod applied for them. Tests of templates share it.
package deploymenttest
