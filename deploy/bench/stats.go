package main

import (
	"slices"
	"time"
)

// spread is the range of the figures of several rounds.
type spread struct{ low, median, high float64 }

// spreadOf summarises figures. There must be at least one.
func spreadOf(figures []float64) spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{low: sorted[0], median: (sorted[(n-1)/2] + sorted[n/2]) / 2, high: sorted[n-1]}
}

// percentile returns the time that a share of all times, such as 0.99, does not exceed. The times are ascending.
// Without times it is zero.
func percentile(ascending []time.Duration, share float64) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[min(len(ascending)-1, int(share*float64(len(ascending))))]
}
