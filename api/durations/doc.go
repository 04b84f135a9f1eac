// Package durations rewrites durations in the JSON of protobuf messages. Istio reads such JSON with a parser that takes
// every duration of Go, 1h30m as well as 5400s; package protojson takes seconds alone. Its functions are pure.
package durations
