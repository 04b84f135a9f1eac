package envoy

import "github.com/cespare/xxhash/v2"

// Content is what the version and the size of a RouteConfiguration depend on in its virtual hosts, whatever their order. It is worked out from that of another by
// what differs.
type Content struct {
	sum  uint64
	size int
}

// Add counts a virtual host in.
func (c *Content) Add(h *Resource) {
	c.sum += xxhash.Sum64String(h.Version)
	c.size += hostSize(h)
}

// Remove counts a virtual host out.
func (c *Content) Remove(h *Resource) {
	c.sum -= xxhash.Sum64String(h.Version)
	c.size -= hostSize(h)
}
