package rds

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Rule is the rule of a VirtualService from which a route is made. Delegates are merged into the VirtualService. Match is
// -1 if the rule has no match.
type Rule struct {
	Object      kinds.Key
	Rule, Match int
	Route       *routev3.Route
}

// Rules returns the rules of the routes of a virtual host, in the order of the routes, from the key by which the memo
// has the host, for which it makes the routes again. It returns false for other keys.
func (m *Routes) Rules(key any) ([]Rule, bool) {
	k, ok := key.(virtualHostKey)
	if !ok {
		return nil, false
	}
	b := k.builder(m.hooks)
	made := map[*routev3.Route]Rule{}
	b.made = func(o *kinds.Object) func(*routev3.Route, int, int) {
		return func(r *routev3.Route, rule, match int) { made[r] = Rule{o.Key, rule, match, r} }
	}
	var list []Rule
	for _, r := range b.httpRoutes() {
		list = append(list, made[r])
	}
	return list, true
}
