// Package ecds makes the configurations of filters that proxies subscribe to by name: those that listeners name and do
// not hold. Features have them by their hook Extension, and patches may add more (translate/patch). Its tests are the
// goldens of pilot/feature/extension. The package is pure.
package ecds
