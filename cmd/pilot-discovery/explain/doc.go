// Package explain has the command explain, which says what a finding means.
package explain
