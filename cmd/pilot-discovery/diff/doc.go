// Package diff has the command diff, which prints what a change of configuration changes in what proxies are sent.
package diff
