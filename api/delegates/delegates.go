package delegates

import (
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// entryBytes is the size of a route or a match besides its text.
const entryBytes = 64

// cost is the number and size of a list of routes without their matches, and of their matches.
type cost struct {
	routes, text           int
	unmatched              int // routes without a match
	matches, textOfMatches int
}

func (c *cost) add(h *networkingv1alpha3.HTTPRoute) {
	sum := 0
	for _, m := range h.Match {
		sum += proto.Size(m)
	}
	if len(h.Match) == 0 {
		c.unmatched++
	}
	c.routes++
	c.text += entryBytes + proto.Size(h) - sum
	c.matches += len(h.Match)
	c.textOfMatches += len(h.Match)*entryBytes + sum
}

// within returns about how many bytes the routes have after each is narrowed by route h of another VirtualService.
func (c *cost) within(h *networkingv1alpha3.HTTPRoute) int {
	var root cost
	root.add(h)
	return c.text + c.routes*root.text + max(root.matches, 1)*c.textOfMatches + (c.matches+c.unmatched)*root.textOfMatches
}

// Fitting returns how many of the first routes of a VirtualService may be used: all, or those in front of the
// delegation that exceeds the bound. most bounds the product of its hosts and the bytes of its routes and its
// delegates' routes. find returns a delegate, or nil if there is none.
func Fitting(root *networkingv1.VirtualService, most int, find func(*networkingv1alpha3.Delegate) *networkingv1.VirtualService) int {
	left := most / max(len(root.Hosts), 1)
	costs := map[*networkingv1.VirtualService]*cost{}
	for i, h := range root.Http {
		if h.Delegate == nil {
			continue
		}
		d := find(h.Delegate)
		if d == nil {
			continue
		}
		c := costs[d]
		if c == nil {
			c = &cost{}
			for _, r := range d.Http {
				c.add(r)
			}
			costs[d] = c
		}
		if left -= c.within(h); left < 0 {
			return i
		}
	}
	return len(root.Http)
}
