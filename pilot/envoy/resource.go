package envoy

import (
	"cmp"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Resource is one encoded xDS resource. Never changed once made, and shared by pointer by everybody who is sent it.
type Resource struct {
	Name    string
	Version string // hash of Body, in hex: the same bytes have the same version on every replica
	Body    []byte // the encoded google.protobuf.Any

	// Of a RouteConfiguration: what it was made of. Hosts are Resources of their own, named "<route configuration>/<virtual host>".
	Header *Resource
	Hosts  []*Resource

	value int // where the Any's value begins in Body; it runs to the end
}

// Value is the encoded message inside the Any.
func (r *Resource) Value() []byte { return r.Body[r.value:] }

// Set holds the resources of one type for one half of a cohort, sorted by name. Never changed once made.
type Set struct {
	resources []*Resource
}

// NewSet sorts and keeps resources. Of several with one name the first stays.
func NewSet(resources []*Resource) *Set {
	slices.SortStableFunc(resources, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	return &Set{slices.CompactFunc(resources, func(a, b *Resource) bool { return a.Name == b.Name })}
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
		if !u.omits(r.Name) && !yield(r) {
			return
		}
	}
	for _, r := range u.Inbound.All() {
		if !u.omits(r.Name) && u.Outbound.Get(r.Name) == nil && !yield(r) {
			return
		}
	}
}

// Get gives the resource of that name, or nil.
func (u Union) Get(name string) *Resource {
	if u.omits(name) {
		return nil
	}
	if r := u.Outbound.Get(name); r != nil {
		return r
	}
	return u.Inbound.Get(name)
}

func (u Union) omits(name string) bool {
	for n := range u.Omit.All {
		if n == name {
			return true
		}
	}
	return false
}
