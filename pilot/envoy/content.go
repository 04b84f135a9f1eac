package envoy

import "github.com/cespare/xxhash/v2"

// Content summarizes the virtual hosts of a RouteConfiguration: their hash and their size, independent of their order.
// It is updated incrementally as virtual hosts are added and removed.
type Content struct {
	sum  uint64
	size int
}

// Add adds a virtual host.
func (c *Content) Add(h *Resource) {
	c.sum += xxhash.Sum64String(h.Version)
	c.size += hostSize(h)
}

// Remove removes a virtual host.
func (c *Content) Remove(h *Resource) {
	c.sum -= xxhash.Sum64String(h.Version)
	c.size -= hostSize(h)
}
