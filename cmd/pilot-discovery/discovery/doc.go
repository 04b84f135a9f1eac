// Package discovery has the command discovery, which runs the server: its flags, and the limits of the process.
package discovery
