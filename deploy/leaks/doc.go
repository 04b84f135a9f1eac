// Package leaks fails tests that leave goroutines behind.
package leaks
