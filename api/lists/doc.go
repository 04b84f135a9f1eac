// Package lists has functions on slices and maps that packages slices and maps lack.
package lists
