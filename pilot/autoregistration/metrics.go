package autoregistration

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	success, updates, unregister, deletes, errors prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "auto_registration_" + name + "_total", Help: help})
		reg.MustRegister(c)
		return c
	}
	return &metrics{
		success:    counter("success", "Workloads that were registered."),
		updates:    counter("updates", "Registered workloads whose proxy reconnected."),
		unregister: counter("unregister", "Registered workloads whose proxy disconnected."),
		deletes:    counter("deletes", "Registered workloads that were deleted after the grace period."),
		errors:     counter("errors", "Registrations that were refused, and writes that failed."),
	}
}
