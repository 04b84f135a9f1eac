package envoy

import (
	"cmp"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Resource is one encoded xDS resource. Never changed once made, and shared by pointer by everybody who is sent it.
type Resource struct {
	Name    string
	Version string // hash of the content, in hex: the same bytes have the same version on every replica
	Body    []byte // the encoded google.protobuf.Any; nil of a RouteConfiguration that is made of Hosts, whose bytes Bytes puts together

	// Of a RouteConfiguration that was made of others. Hosts are Resources of their own, named "<route configuration>/<virtual host>". Head is what a client is
	// sent that takes the Hosts by themselves; nil where nobody does.
	Header, Head *Resource
	Hosts        []*Resource
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

// overhead is about what a resource takes in memory beside its names and content: itself, its key and its place in a memo.
const overhead = 512

// cost is about what the resource itself takes in memory, without what it is made of.
func (r *Resource) cost() int { return overhead + 2*len(r.Name) + len(r.Body) + 8*len(r.Hosts) }

// Set holds the resources of one type for one half of a cohort, sorted by name. Never changed once made.
type Set struct {
	resources []*Resource
	divide    func() (heads, hosts *Set)
}

// NewSet sorts and keeps resources. Of several with one name the first stays.
func NewSet(resources []*Resource) *Set {
	slices.SortStableFunc(resources, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	s := &Set{resources: slices.CompactFunc(resources, func(a, b *Resource) bool { return a.Name == b.Name })}
	if slices.ContainsFunc(s.resources, func(r *Resource) bool { return r.Head != nil }) {
		s.divide = sync.OnceValues(s.parts)
	}
	return s
}

// Divided gives the Set as clients are sent it that take virtual hosts by themselves, and those virtual hosts. Made once.
func (s *Set) Divided() (heads, hosts *Set) {
	if s == nil || s.divide == nil {
		return s, nil
	}
	return s.divide()
}

func (s *Set) parts() (heads, hosts *Set) {
	first := make([]*Resource, len(s.resources))
	var rest []*Resource
	for i, r := range s.resources {
		first[i] = r
		if r.Head != nil {
			first[i] = r.Head
			rest = append(rest, r.Hosts...)
		}
	}
	return NewSet(first), NewSet(rest)
}

// All gives the resources by name. The caller must not change the slice.
func (s *Set) All() []*Resource {
	if s == nil {
		return nil
	}
	return s.resources
}

// Get gives the resource of that name, or nil.
func (s *Set) Get(name string) *Resource {
	if s == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.resources, name, func(r *Resource, n string) int { return cmp.Compare(r.Name, n) })
	if !ok {
		return nil
	}
	return s.resources[i]
}

// Below gives the resources whose names are under a folder: those of "80" are named "80/…". The caller must not change the slice.
func (s *Set) Below(folder string) []*Resource {
	from := func(prefix string) int {
		i, _ := slices.BinarySearchFunc(s.All(), prefix, func(r *Resource, n string) int { return cmp.Compare(r.Name, n) })
		return i
	}
	return s.All()[from(folder+"/"):from(folder+"0")] // 0 is what comes after /
}

// Equal tells whether both sets hold the very same resources.
func (s *Set) Equal(o *Set) bool {
	return s == o || s != nil && o != nil && slices.Equal(s.resources, o.resources)
}

// Type URLs of the resources that this server sends.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType       = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// Union is what one proxy is sent of a wildcard type: the half that its outbound cohort shares and the half that its inbound cohort shares, less
// the names that it alone must not have. Two Unions are the same configuration when both Sets are the same pointers and Omit is equal.
type Union struct {
	Outbound, Inbound *Set
	Omit              frozen.List[string] // names left out for this proxy alone: listeners of headless services for the pod itself
}

// All calls yield for each resource; a name that is in both halves comes once, from Outbound.
func (u Union) All(yield func(*Resource) bool) {
	for _, r := range u.Outbound.All() {
		if !u.Omits(r.Name) && !yield(r) {
			return
		}
	}
	for _, r := range u.Inbound.All() {
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
	for n := range u.Omit.All {
		if n == name {
			return true
		}
	}
	return false
}
