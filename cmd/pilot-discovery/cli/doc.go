// Package cli has what the commands of pilot-discovery share: output formats, colours, watching, progress, completion,
// exit codes, errors of wrong arguments, checks of values, and requests to a server on the same host.
//
// A command reads pages of a server by Page, Read and Decode, or Pages. They bound what a server may send, and make its
// words plain for a terminal: [TestDecode].
package cli
