// Package diff has the command diff, which prints the effect of a change of configuration on what proxies are sent.
package diff
