// Package bootstrap has the command bootstrap, which prints what an Envoy needs to connect to a server.
package bootstrap
