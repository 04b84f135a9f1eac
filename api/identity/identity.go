package identity

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ID is the identity of a workload. The zero ID stands for no identity.
type ID struct{ TrustDomain, Namespace, ServiceAccount string }

// maxLength bounds a SPIFFE ID: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md, section 2.
const maxLength = 2048

// Parse returns the ID of spiffe://<trust domain>/ns/<namespace>/sa/<service account>. Each part has only letters,
// digits, dots, dashes and underscores, and no segment of the path is "." or "..": SPIFFE allows no other.
func Parse(uri string) (ID, error) {
	bad := func(why string) (ID, error) {
		return ID{}, fmt.Errorf("%.200q is no identity of a workload: %s", uri, why)
	}
	rest, ok := strings.CutPrefix(uri, "spiffe://")
	switch {
	case len(uri) > maxLength:
		return bad("it is too long")
	case !ok:
		return bad("it does not begin with spiffe://")
	}
	part := strings.Split(rest, "/")
	if len(part) != 5 || part[1] != "ns" || part[3] != "sa" {
		return bad("it is not spiffe://<trust domain>/ns/<namespace>/sa/<service account>")
	}
	for _, s := range part {
		if s == "" || s == "." || s == ".." || strings.IndexFunc(s, forbidden) >= 0 {
			return bad("it has a part that SPIFFE does not allow")
		}
	}
	if part[0] != strings.ToLower(part[0]) {
		return bad("its trust domain has capital letters")
	}
	return ID{part[0], part[2], part[4]}, nil
}

func forbidden(r rune) bool {
	allowed := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-' || r == '_'
	return !allowed
}

// String returns the SPIFFE ID; empty for the zero ID.
func (id ID) String() string {
	if id == (ID{}) {
		return ""
	}
	return "spiffe://" + id.TrustDomain + "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount
}

// Proof is how a peer proved its ID.
type Proof int

// Proofs.
const (
	Unproved    Proof = iota // the peer has no ID
	Certificate              // a verified client certificate
	Token                    // a token that its issuer reviewed
)

// String returns the name of the proof.
func (p Proof) String() string {
	switch p {
	case Certificate:
		return "certificate"
	case Token:
		return "token"
	}
	return "unproved"
}

// Peer is the other end of a connection.
type Peer struct {
	ID      ID // zero if it proved none
	Proof   Proof
	Address netip.AddrPort // invalid if it is not an IP address

	Bound   Bound
	Expires time.Time // expiry of the proof; zero if there is none

	// Federated is true if the issuer of the ID is only trusted for aliases of the mesh's trust domain. The control
	// plane shows such a peer no internals of the mesh.
	Federated bool
}

// Bound restricts what the proof is valid for besides its ID. An empty field restricts nothing.
type Bound struct {
	Cluster     string // ID of the cluster that issued the token
	Pod, PodUID string // pod in the ID's namespace
	Node        string // node that the pod runs on
}

// Pod describes the pod that a token is bound to. The zero Pod stands for a pod that does not exist.
type Pod struct{ UID, ServiceAccount, Node string }

// Proved reports whether the peer proved an ID.
func (p Peer) Proved() bool { return p.Proof != Unproved && p.ID != ID{} }

// OnHost reports whether the peer is on this host, by its address.
func (p Peer) OnHost() bool { return p.Address.IsValid() && p.Address.Addr().Unmap().IsLoopback() }

// String returns the name of the peer for messages: its ID, or its address if it proved none.
func (p Peer) String() string {
	switch {
	case p.Proved():
		return p.ID.String()
	case p.Address.IsValid():
		return p.Address.String()
	}
	return "a peer without an address"
}
