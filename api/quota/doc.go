// Package quota bounds how much of a shared resource each client may hold, so that no client takes all of it. A client
// is an address, or the identity that a peer has proved: identity.Holder. Share returns how much of a pool one client
// may hold.
//
// A Counter counts amounts, such as entries. A Pool has places that are kept for long, such as those of streams. Slots
// bound concurrent work, for which clients take turns. Values counts the bytes of values that are in memory once
// although they are held several times. Listen bounds connections. A Table keeps a value for each client that holds
// something. Addresses are those of peers; IPv4 addresses in IPv6 form are the same as IPv4 addresses. Any goroutine
// may use the types, and they run none.
//
// # Guarantees
//
//   - No identity, address or tenant takes more than its share of a pool, of slots or of connections: [TestPool],
//     [TestSlots], [TestConnectionsOfOneAddress]. A Pool serves in turn holders of few places and of many:
//     [TestPoolIsFair], [TestSmallPool]. Its size may change: [TestResize].
package quota
