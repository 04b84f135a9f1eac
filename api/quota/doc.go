// Package quota bounds what each client may hold of what all clients of a server share, so that no client takes all
// of it. A client is an address, or the identity that a peer has proved: identity.Holder. Share says how much of a
// pool one client may hold.
//
// A Counter counts amounts, such as entries. A Pool has places that are kept for long, such as those of streams. Slots
// bound the work that is done at a time, and clients take turns. Values counts the bytes of values that are in memory
// once, however often they are held. Listen bounds connections. A Table keeps a value for each client while it has
// something. Addresses are those of peers, with IPv4 addresses in IPv6 form taken as IPv4. Its types may be used by any
// goroutine, and run none.
//
// # Guarantees
//
//   - No identity, address or tenant takes more than its share of a pool, of slots or of connections: [TestPool],
//     [TestSlots], [TestConnectionsOfOneAddress].
package quota
