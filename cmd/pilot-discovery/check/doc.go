// Package check has the command check, which checks a cluster, a server or a proxy.
package check
