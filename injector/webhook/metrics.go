package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the same names as istiod's.
type metrics struct {
	requests, succeeded, failed, skipped prometheus.Counter
	seconds                              prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "sidecar_injection_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		requests:  counter("requests_total", "Pods that the API server has asked about."),
		succeeded: counter("success_total", "Pods that got a proxy."),
		failed:    counter("failure_total", "Pods that were refused, and requests that were no reviews."),
		skipped:   counter("skip_total", "Pods that stay as they are."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sidecar_injection_time_seconds", Help: "How long a review takes.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}, NativeHistogramBucketFactor: 1.1,
			NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
	}
	r.MustRegister(m.seconds)
	return m
}
