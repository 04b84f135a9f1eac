package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have the same names as istiod's.
type metrics struct {
	requests, unauthenticated, unparsable, noIdentity, issued, extra prometheus.Counter
	failed                                                           *prometheus.CounterVec // labelled by error
}

func newMetrics(r prometheus.Registerer) metrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: "citadel_server_" + name, Help: help})
	}
	return metrics{
		requests:        counter("csr_count", "Certificate requests."),
		unauthenticated: counter("authentication_failure_count", "Certificate requests whose caller could not be authenticated."),
		unparsable:      counter("csr_parsing_err_count", "Certificate requests that were malformed, or had a key that is not accepted."),
		noIdentity:      counter("id_extraction_err_count", "Certificate requests for an identity that the caller may not have."),
		issued:          counter("success_cert_issuance_count", "Certificates issued."),
		extra:           counter("csr_names_ignored_count", "Certificates issued without other names that were asked for."),
		failed: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "citadel_server_csr_sign_err_count", Help: "Certificates that were not issued, by error.",
		}, []string{"error"}),
	}
}
