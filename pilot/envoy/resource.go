package envoy

import (
	"bytes"
	"iter"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Resource is one encoded xDS resource. It is immutable, and all clients share its pointer.
type Resource struct {
	Name    string
	Version string // hash of the content in hex; the same on every replica for the same bytes
	Body    []byte // encoded google.protobuf.Any; nil for a RouteConfiguration with Hosts, which Bytes splices

	// Header, Head and Hosts are set for a RouteConfiguration that was spliced from other resources. Hosts are
	// Resources of their own, named "<route configuration>/<virtual host>". Head is sent to clients that subscribe to
	// the Hosts by VHDS. It is nil if no client may do so.
	Header, Head *Resource
	Hosts        *Set
	Divided      bool // the resource is a Head, made by SetDivided

	Notes []Note // results of patches of objects in this resource

	removed bool // stands for a removed resource
	same    bool // stands for the unchanged resource that it was built from
	secret  bool // of a Secret type: its content is never printed, cached or kept while unused

	// references are found at the first call of References. Nil if the resource cannot have any.
	references *references

	value int // offset of the Any's value in Bytes; it extends to the end
	size  int // length of Bytes if Body is nil
}

// headMark begins the versions of Heads. Other versions are in hex and never begin with it.
const headMark = "head"

// SetDivided turns a new resource into a Head: a RouteConfiguration without its virtual hosts.
func (r *Resource) SetDivided() { r.Divided, r.Version = true, headMark+r.Version }

// IsHeadVersion reports whether a version belongs to a Head, with any content.
func IsHeadVersion(version string) bool { return strings.HasPrefix(version, headMark) }

// Note is the result of one patch of an object in a resource.
type Note struct {
	Object *kinds.Object
	Index  int    // index of the patch in its object
	Reason string // why the patch is left out; empty if it was applied
}

// RemovedResource returns a placeholder for a removed resource of that name.
func RemovedResource(name string, notes []Note) *Resource {
	return &Resource{Name: name, Notes: notes, removed: true}
}

// Removed reports whether the resource is a placeholder for a removed one.
func (r *Resource) Removed() bool { return r.removed }

// SameResource returns a placeholder for the resource that it was built from. Builders of a MemoTable return it if they
// change nothing: a key holds the resources in it, and a resource that its own key holds would never be dropped.
func SameResource(name string) *Resource { return &Resource{Name: name, same: true} }

// Same reports whether the resource is a placeholder for the one that it was built from.
func (r *Resource) Same() bool { return r.same }

// With returns a copy of the resource with other Notes.
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

// Bytes returns the encoded google.protobuf.Any. For a RouteConfiguration spliced from Hosts each call makes a copy.
func (r *Resource) Bytes() []byte {
	if r.Body != nil {
		return r.Body
	}
	return r.splice()
}

// TypeURL returns the type of the encoded message.
func (r *Resource) TypeURL() string {
	if r.Body == nil {
		return RouteType // all spliced resources have this type
	}
	if num, kind, n := protowire.ConsumeTag(r.Body); n > 0 && num == 1 && kind == protowire.BytesType {
		url, _ := protowire.ConsumeString(r.Body[n:])
		return url
	}
	return ""
}

// Value returns the encoded message inside the Any.
func (r *Resource) Value() []byte { return r.Bytes()[r.value:] }

// NamesOnly reports whether an assignment holds only its name, field 1, and no endpoints.
func (r *Resource) NamesOnly() bool {
	return len(r.Value()) == protowire.SizeTag(1)+protowire.SizeBytes(len(r.Name))
}

// WantsCertificates reports whether a resource names the cluster that serves certificates to Envoy.
func (r *Resource) WantsCertificates() bool {
	return bytes.Contains(r.Value(), []byte(names.SDSCluster))
}

// overhead is the approximate memory, in bytes, of a resource beside its names and content: the struct, its key and its
// entry in a memo.
const overhead = 512

// Cost returns the approximate memory, in bytes, of the resource itself, without the resources that it was spliced
// from.
func (r *Resource) Cost() int { return overhead + 2*len(r.Name) + len(r.Body) }

// Union is the set of resources of one type that one proxy is sent. Shared is the half that it has in common with other
// workloads. Own is the half that depends on its own workload or its location. Two Unions are the same configuration if
// all fields are the same pointers.
type Union struct {
	Shared, Own *Set
	Omit        *Names // names left out for this proxy alone: listeners of headless services for the pod itself

	// Empty are names of assignments. A name that is in neither half nor in Failed stands for an assignment without
	// endpoints, which is made on request: a client may ask for any number of clusters that do not exist.
	Empty *Names
	// Failed are the names in Empty whose assignments could not be made.
	Failed *Names
}

// EmptyAssignment returns the assignment of a cluster without endpoints.
func EmptyAssignment(cluster string) *Resource {
	return RawResource(cluster, EndpointType, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), cluster))
}

// Known reports whether a half has a resource of that name.
func (u Union) Known(name string) bool { return u.Shared.Get(name) != nil || u.Own.Get(name) != nil }

// Unknown returns the names after another one, in order, that no half has. Their assignments are empty.
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

// All calls yield for each resource. A name that is in both halves is passed once, from Shared.
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

// Omits reports whether a name is in Omit.
func (u Union) Omits(name string) bool {
	return u.Omit != nil && u.Omit.Has(name)
}
