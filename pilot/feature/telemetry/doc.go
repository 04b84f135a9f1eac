// Package telemetry translates what the mesh configuration says is to be measured and traced: whether proxies get the istio.stats filter, which package translate
// makes for those that have it, and the tracing of HTTP connection managers. Telemetry objects are not translated yet. It is pure.
package telemetry
