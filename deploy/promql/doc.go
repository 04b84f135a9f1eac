// Package promql holds a program that evaluates queries in Prometheus's own engine, over scrapes. It reads an Input as
// JSON from standard input and writes a list of Answers to standard output, one for each query, in the same order. An
// error of a query is part of its answer. An error of a scrape ends the program.
//
// deploy/tools/promql.sh builds it, with promql.mod instead of go.mod. The go command otherwise ignores it, so the
// control plane's module does not require Prometheus's server.
package promql
