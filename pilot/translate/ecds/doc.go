// Package ecds makes the configurations of filters to which proxies subscribe by name, because listeners only name
// them. Features make them by their hook Extension, and patches may add more (translate/patch). Its tests are the
// goldens of pilot/feature/extension. The package is pure.
package ecds
