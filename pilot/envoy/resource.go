package envoy

import (
	"bytes"
	"iter"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Resource is one encoded xDS resource. It never changes once made, and everybody who is sent it shares its pointer.
type Resource struct {
	Name    string
	Version string // hash of the content, in hex: the same bytes have the same version on every replica
	Body    []byte // the encoded google.protobuf.Any; nil for a RouteConfiguration with Hosts, which Bytes splices

	// Of a RouteConfiguration that was made of others. Hosts are Resources of their own, named "<route
	// configuration>/<virtual host>". Head is what a client is sent that takes the Hosts by themselves; nil where
	// nobody does.
	Header, Head *Resource
	Hosts        *Set
	Divided      bool // It is a Head, which SetDivided has made.

	Notes []Note // what became of patches of objects when it was made

	removed bool // it stands for one that is removed
	same    bool // it stands for the one that it was built of
	secret  bool // of a Secret type: what is in it is not shown, cached or kept for later

	value int // where the Any's value begins in Bytes; it runs to the end
	size  int // of Bytes, where Body is nil
}

// headMark begins the versions of Heads. No other version begins with it, for they are in hex.
const headMark = "head"

// SetDivided makes a new resource a Head: a RouteConfiguration without its virtual hosts.
func (r *Resource) SetDivided() { r.Divided, r.Version = true, headMark+r.Version }

// IsHeadVersion reports whether a version is one of a Head, whatever its content.
func IsHeadVersion(version string) bool { return strings.HasPrefix(version, headMark) }

// Note says what became of a patch of an object when a resource was made.
type Note struct {
	Object *kinds.Object
	Index  int    // of the patch in its object
	Reason string // why the patch is left out; empty: it was applied
}

// RemovedResource returns what stands for a resource of that name that is removed.
func RemovedResource(name string, notes []Note) *Resource {
	return &Resource{Name: name, Notes: notes, removed: true}
}

// Removed reports whether a resource stands for one that is removed.
func (r *Resource) Removed() bool { return r.removed }

// SameResource returns what stands for the resource that it was built of. Builders of a MemoTable return it where they
// change nothing: a key holds the resources in it, and one that its own key holds would never be forgotten.
func SameResource(name string) *Resource { return &Resource{Name: name, same: true} }

// Same reports whether a resource stands for the one that it was built of.
func (r *Resource) Same() bool { return r.same }

// With returns a copy of the resource that has other Notes.
func (r *Resource) With(notes []Note) *Resource {
	c := *r
	c.Notes = notes
	return &c
}

// Size returns the length of Bytes.
func (r *Resource) Size() int {
	if r.Body == nil {
		return r.size
	}
	return len(r.Body)
}

// Bytes returns the encoded google.protobuf.Any. For a RouteConfiguration made of Hosts each call makes a copy.
func (r *Resource) Bytes() []byte {
	if r.Body != nil {
		return r.Body
	}
	return r.splice()
}

// TypeURL returns the type of the encoded message.
func (r *Resource) TypeURL() string {
	if r.Body == nil {
		return RouteType // all that are spliced
	}
	if num, kind, n := protowire.ConsumeTag(r.Body); n > 0 && num == 1 && kind == protowire.BytesType {
		url, _ := protowire.ConsumeString(r.Body[n:])
		return url
	}
	return ""
}

// Value returns the encoded message inside the Any.
func (r *Resource) Value() []byte { return r.Bytes()[r.value:] }

// NamesOnly reports whether an assignment holds nothing but its name, in field 1: there are no endpoints.
func (r *Resource) NamesOnly() bool {
	return len(r.Value()) == protowire.SizeTag(1)+protowire.SizeBytes(len(r.Name))
}

// WantsCertificates reports whether a resource names the cluster from which an Envoy gets its certificates.
func (r *Resource) WantsCertificates() bool {
	return bytes.Contains(r.Value(), []byte(names.SDSCluster))
}

// overhead is about what a resource takes in memory beside its names and content: itself, its key and its place in a
// memo.
const overhead = 512

// Cost returns about how many bytes of memory the resource itself takes, without what it is made of.
func (r *Resource) Cost() int { return overhead + 2*len(r.Name) + len(r.Body) }

// Union is what one proxy is sent of a type: Shared is the half that it has in common with other workloads, Own the
// half that depends on its own workload or on where that runs. Two Unions are the same configuration when all fields
// are the same pointers.
type Union struct {
	Shared, Own *Set
	Omit        *Names // left out for this proxy alone: listeners of headless services for the pod itself

	// Empty are names of assignments. A name that neither half nor Failed has stands for an assignment without
	// endpoints, which is made when it is asked for: a client may ask for any number of clusters that do not exist.
	Empty *Names
	// Failed are the names in Empty that no half has because their assignments could not be made.
	Failed *Names
}

// EmptyAssignment returns the assignment of a cluster without endpoints.
func EmptyAssignment(cluster string) *Resource {
	return RawResource(cluster, EndpointType, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), cluster))
}

// Known reports whether a half has a resource of that name.
func (u Union) Known(name string) bool { return u.Shared.Get(name) != nil || u.Own.Get(name) != nil }

// Unknown returns the names after another one, in order, whose assignments are empty because no half has them.
func (u Union) Unknown(after string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if u.Shared.Len()+u.Own.Len() >= u.Empty.Len() {
			return
		}
		later := func(name string) int {
			if name <= after {
				return -1
			}
			return 0
		}
		for name := range u.Empty.Table().Where(later) {
			if !u.Known(name) && !u.Failed.Has(name) && !yield(name) {
				return
			}
		}
	}
}

// All calls yield for each resource; a name that is in both halves comes once, from Shared.
func (u Union) All(yield func(*Resource) bool) {
	for r := range u.Shared.All {
		if !u.Omits(r.Name) && !yield(r) {
			return
		}
	}
	for r := range u.Own.All {
		if !u.Omits(r.Name) && u.Shared.Get(r.Name) == nil && !yield(r) {
			return
		}
	}
	for name := range u.Unknown("") {
		if !yield(EmptyAssignment(name)) {
			return
		}
	}
}

// Get returns the resource of that name, or nil.
func (u Union) Get(name string) *Resource {
	if u.Omits(name) {
		return nil
	}
	if r := u.Shared.Get(name); r != nil {
		return r
	}
	if r := u.Own.Get(name); r != nil || !u.Empty.Has(name) || u.Failed.Has(name) {
		return r
	}
	return EmptyAssignment(name)
}

// Omits reports whether a name is left out.
func (u Union) Omits(name string) bool {
	return u.Omit != nil && u.Omit.Has(name)
}
