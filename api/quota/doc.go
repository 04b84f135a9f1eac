// Package quota bounds what each address that clients connect from may hold of a server, so that no client takes what
// belongs to all. A Counter counts amounts, such as streams; Listen bounds connections; a Table keeps a value for each
// address while something of that address is there. Addresses are those of peers, with IPv4 addresses in IPv6 form
// taken as IPv4. Its types may be used by any goroutine, and run none.
package quota
