// Package cli has what the commands of pilot-discovery share: output formats, colours, watching, progress, completion,
// exit codes, errors of wrong arguments, checks of values, and requests to a server on the same host.
//
// A command reads pages of a server by Page, by Read and Decode, or by Pages. These functions limit the size of an
// answer, and make the strings in it plain for a terminal: [TestDecode].
package cli
