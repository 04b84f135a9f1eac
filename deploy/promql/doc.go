// Package promql holds a program that answers queries in Prometheus's own engine, over scrapes. It reads an Input as
// JSON from standard input and writes a list of Answers to standard output, one for each query, in the same order. What
// is wrong with a query is part of its answer; what is wrong with a scrape ends the program.
//
// deploy/tools/promql.sh builds it, with promql.mod instead of go.mod. The go command ignores it otherwise, so
// that the control plane's module requires nothing of Prometheus's server.
package promql
