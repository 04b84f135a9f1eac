// Package load has the command load, which connects simulated proxies to a server.
package load
