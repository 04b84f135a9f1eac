// Package cli has what the commands of pilot-discovery share: output formats, colours, watching, progress, completion,
// exit codes, errors of wrong arguments, checks of values, and requests to a server on the same host.
package cli
