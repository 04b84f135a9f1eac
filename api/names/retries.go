package names

// RetryConditions returns the conditions of Envoy's x-envoy-retry-on and x-envoy-retry-grpc-on.
func RetryConditions() []string {
	return []string{
		"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure",
		"envoy-ratelimited", "retriable-4xx", "refused-stream", "retriable-status-codes",
		"retriable-headers", "http3-post-connect-failure", "cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
	}
}
