// Package jwt tests RequestAuthentications between real Envoys: tokens of every kind in every place, routes by their
// claims, and servers of keys that are away, come back and rotate their keys. The servers of keys are the test's own.
package jwt
