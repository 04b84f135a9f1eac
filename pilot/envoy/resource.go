package envoy

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Resource is one encoded xDS resource. Never changed once made, and shared by pointer by everybody who is sent it.
type Resource struct {
	Name    string
	Version string // hash of the content, in hex: the same bytes have the same version on every replica
	Body    []byte // the encoded google.protobuf.Any; nil of a RouteConfiguration that is made of Hosts, whose bytes Bytes puts together

	// Of a RouteConfiguration that was made of others. Hosts are Resources of their own, named "<route configuration>/<virtual host>". Head is what a client is
	// sent that takes the Hosts by themselves; nil where nobody does.
	Header, Head *Resource
	Hosts        *Set
	Divided      bool // it is such a Head

	value int // where the Any's value begins in Bytes; it runs to the end
	size  int // of Bytes, where Body is nil
}

// Size is the number of Bytes.
func (r *Resource) Size() int {
	if r.Body == nil {
		return r.size
	}
	return len(r.Body)
}

// Bytes is the encoded google.protobuf.Any. Of a RouteConfiguration made of Hosts each call makes a copy.
func (r *Resource) Bytes() []byte {
	if r.Body != nil {
		return r.Body
	}
	return r.join()
}

// Value is the encoded message inside the Any.
func (r *Resource) Value() []byte { return r.Bytes()[r.value:] }

// NamesOnly tells that an assignment says nothing but whose it is, in field 1: there are no endpoints.
func (r *Resource) NamesOnly() bool {
	return len(r.Value()) == protowire.SizeTag(1)+protowire.SizeBytes(len(r.Name))
}

// WantsCertificates reports whether a resource names the cluster from which an Envoy gets its certificates.
func (r *Resource) WantsCertificates() bool {
	return bytes.Contains(r.Value(), []byte(names.SDSCluster))
}

// overhead is about what a resource takes in memory beside its names and content: itself, its key and its place in a memo.
const overhead = 512

// cost is about what the resource itself takes in memory, without what it is made of.
func (r *Resource) cost() int { return overhead + 2*len(r.Name) + len(r.Body) }

// Union is what one proxy is sent of a wildcard type: the half that its outbound cohort shares and the half that its inbound cohort shares, less
// the names that it alone must not have. Two Unions are the same configuration when both Sets are the same pointers and so is Omit.
type Union struct {
	Outbound, Inbound *Set
	Omit              *Names // left out for this proxy alone: listeners of headless services for the pod itself
}

// All calls yield for each resource; a name that is in both halves comes once, from Outbound.
func (u Union) All(yield func(*Resource) bool) {
	for r := range u.Outbound.All {
		if !u.Omits(r.Name) && !yield(r) {
			return
		}
	}
	for r := range u.Inbound.All {
		if !u.Omits(r.Name) && u.Outbound.Get(r.Name) == nil && !yield(r) {
			return
		}
	}
}

// Get gives the resource of that name, or nil.
func (u Union) Get(name string) *Resource {
	if u.Omits(name) {
		return nil
	}
	if r := u.Outbound.Get(name); r != nil {
		return r
	}
	return u.Inbound.Get(name)
}

// Omits tells whether a name is left out.
func (u Union) Omits(name string) bool {
	return u.Omit != nil && u.Omit.Has(name)
}
