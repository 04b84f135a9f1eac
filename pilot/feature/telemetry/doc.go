// Package telemetry translates what is to be measured and traced: the istio.stats filter of proxies that have it, and the tracing of HTTP connection
// managers. It is pure.
package telemetry
