// Package proxystatus has the command proxy-status, which lists the proxies that are connected to a server.
package proxystatus
