package rds

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Made is a route of a virtual host, with the rule from which it is made. The delegates of the rule's object are merged
// into the object.
type Made struct {
	*routev3.Route
	feature.Rule
}

// Rules returns the routes of a virtual host with their rules, from the key by which the memo has the host. It makes
// the routes again. It returns false for other keys.
func (m *Routes) Rules(key any) ([]Made, bool) {
	k, ok := key.(virtualHostKey)
	if !ok {
		return nil, false
	}
	b := k.builder(m.hooks)
	b.made = map[*routev3.Route]feature.Rule{}
	var list []Made
	for _, r := range b.httpRoutes() {
		list = append(list, Made{r, b.made[r]})
	}
	return list, true
}
