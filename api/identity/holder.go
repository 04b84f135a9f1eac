package identity

import "net/netip"

// Holder is a client that a bound applies to: a proved ID, or the address of peers that have proved none. The zero
// Holder is a peer without either, or on this host.
type Holder struct {
	ID      ID
	Address netip.Addr
}

// Holder returns the holder that a peer belongs to. It returns false if no bound applies to the peer, because it has
// proved no ID and is on this host or has no address.
func (p Peer) Holder() (h Holder, bounded bool) {
	switch {
	case p.Proved():
		return Holder{ID: p.ID}, true
	case p.OnHost(), !p.Address.IsValid():
		return Holder{}, false
	}
	return Holder{Address: p.Address.Addr().Unmap()}, true
}

// Proved reports whether the holder is an ID.
func (h Holder) Proved() bool { return h.ID != ID{} }

// String returns the ID, or the address if there is none.
func (h Holder) String() string {
	if h.Proved() {
		return h.ID.String()
	}
	return h.Address.String()
}

// Tenant is the namespace of holders that are IDs, or all holders that are addresses. A user who may create service
// accounts in a namespace has any number of IDs, and a user who may create pods has any number of addresses. A bound
// for one holder does not bound such a user. The zero Holder has the zero Tenant.
type Tenant struct {
	TrustDomain, Namespace string
	Unproved               bool
}

// Tenant returns the tenant of a holder.
func (h Holder) Tenant() Tenant {
	if h.Proved() {
		return Tenant{TrustDomain: h.ID.TrustDomain, Namespace: h.ID.Namespace}
	}
	return Tenant{Unproved: h != Holder{}}
}

// String returns the name of the tenant for messages.
func (t Tenant) String() string {
	if t.Unproved {
		return "peers that prove no identity"
	}
	return "namespace " + t.Namespace + " of " + t.TrustDomain
}
