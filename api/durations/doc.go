// Package durations rewrites durations in the JSON of protobuf messages. Istio's parser accepts every duration of Go,
// such as 1h30m or 5400s; package protojson accepts only seconds. Its functions are pure.
package durations
