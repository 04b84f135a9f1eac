// Package debug answers what the server knows and does: which proxies are connected and what they were sent, which
// services, endpoints and configuration it holds, and what is wrong with the latter.
//
// Every page is a function from the parameters of a query to a value that is written as JSON; how it travels is up to
// the caller, and HTTP is one way. The shapes are those that Istio's tools and dashboards read. The package changes
// nothing, starts no goroutine and owns no state but a count of requests in progress.
//
// Off loopback nobody is let in: HTTP requests carry no identity here. Private keys and the data of
// Secrets are never shown.
package debug
