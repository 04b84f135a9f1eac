package validation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
)

func virtualServiceUnits() []unit {
	connection := func(at string) []unit {
		return []unit{
			{path: at, close: closeConnections},
			{path: at + ".match.[]", exact: true},
			{path: at + ".match", close: dropRoute},
			{path: at + ".route", close: replaceBy(`[{"destination": {"host": "` + unusable + `"}}]`)},
			{path: at + ".route.[]", close: closeDestination},
			{path: at + ".route.[].weight", close: remainder},
		}
	}
	list := []unit{
		{path: "spec", close: leaveOut},
		{path: "spec.hosts", close: closeHostList},
		{path: "spec.hosts.[]", close: closeVirtualHost},
		{path: "spec.gateways", close: leaveOut},
		{path: "spec.gateways.[]"},
		{path: "spec.exportTo", close: exportAsWritten},
		{path: "spec.http", close: replaceBy(`[{"directResponse": {"status": 503}}]`)},
		{path: "spec.tls", close: closeServerNames},
		{path: "spec.tcp", close: replaceBy(`[{"route": [{"destination": {"host": "` + unusable + `"}}]}]`)},
		{path: "spec.http.[]", close: answer, free: []string{
			"name", "timeout", "retries.**", "mirror.**", "mirrors.**", "corsPolicy.**",
			"directResponse.body.**", "redirect.redirectCode",
		}},
		{path: "spec.http.[].fault", free: []string{"delay.**"}, close: closeFault},
		{path: "spec.http.[].fault.abort", exact: true, close: closeAbort},
		{path: "spec.http.[].rewrite", close: closeRewrite},
		{path: "spec.http.[].mirrorPercentage", close: noMirror},
		{path: "spec.http.[].mirrorPercent", close: noMirror},
		{path: "spec.http.[].mirrors.[]"},
		{path: "spec.http.[].mirror"},
		{path: "spec.http.[].match", close: answerAll},
		{path: "spec.http.[].match.[]", free: []string{"name", "statPrefix"}, exact: true, close: widen},
		{path: "spec.http.[].route.[]", close: closeDestination},
		{path: "spec.http.[].route.[].weight", close: remainder},
	}
	for _, at := range []string{"spec.http.[].", "spec.http.[].route.[]."} {
		list = append(list, unit{path: at + "headers", exact: true, close: closeHeaders, free: []string{
			"request.add.*", "request.add", "response.add.*", "response.add",
		}})
		for _, side := range []string{"request", "response"} {
			list = append(list,
				unit{path: at + "headers." + side + ".set.*", close: takeOff},
				unit{path: at + "headers." + side + ".remove", close: closeRemoval},
				unit{path: at + "headers." + side + ".remove.[]"},
			)
		}
	}
	list = append(list, connection("spec.tls.[]")...)
	return append(list, connection("spec.tcp.[]")...)
}

// closeHostList answers all requests for the hosts with an error. It leaves out an object whose hosts cannot be read.
func closeHostList(s *salvage, chain []step, _ string) bool {
	spec := chain[0].node
	if hosts := last(chain); hosts.shape != list || len(hosts.items) == 0 {
		return leaveOut(s, chain, "")
	}
	spec.keep("hosts", "gateways", "exportTo")
	spec.set("http", parsed(`[{"directResponse": {"status": 503}}]`))
	return true
}

// closeVirtualHost leaves out a host. The host "*" stays if the object names gateways beside the mesh: only the mesh is
// left out.
func closeVirtualHost(_ *salvage, chain []step, _ string) bool {
	gateways := chain[0].node.get("gateways")
	if last(chain).value != "*" || gateways == nil {
		return false
	}
	isMesh := func(n *node) bool { return n.value == "mesh" }
	if !slices.ContainsFunc(gateways.items, isMesh) || !slices.ContainsFunc(gateways.items, func(n *node) bool { return !isMesh(n) }) {
		return false
	}
	gateways.items = slices.DeleteFunc(gateways.items, isMesh)
	return true
}

// answers reports whether a route keeps requests from being routed.
func (n *node) answers() bool { return n.get("directResponse") != nil || n.get("redirect") != nil }

// answer makes a route answer the requests that it matches itself: with its own directResponse if that can be read, or
// else with an error.
func answer(_ *salvage, chain []step, field string) bool {
	route := last(chain)
	if list := route.get(field); field == "route" && route.answers() && list != nil {
		route.drop(list)
		return true
	}
	answer := parsed(`{"status": 503}`)
	if own := route.get("directResponse"); own != nil && field != "directResponse" && !strings.HasPrefix(field, "match") {
		answer = own
	}
	if route.shape != mapping {
		route.become(&node{shape: mapping})
	}
	route.keep("name", "match")
	route.set("directResponse", answer)
	return true
}

// closeFault leaves out a fault that refuses no requests. Otherwise the route refuses all.
func closeFault(s *salvage, chain []step, _ string) bool {
	if route, fault := chain[2].node, last(chain); route.answers() || fault.shape == mapping && !fault.mentions("abort") {
		return false
	}
	return answer(s, chain[:3], "fault")
}

// closeAbort closes the fault that an abort belongs to.
func closeAbort(s *salvage, chain []step, _ string) bool {
	return closeFault(s, chain[:len(chain)-1], "abort")
}

// closeRewrite leaves out a rewrite without fields. Without any other rewrite requests would go to other paths, so the
// route refuses all.
func closeRewrite(s *salvage, chain []step, _ string) bool {
	if route, rewrite := chain[2].node, last(chain); route.answers() || rewrite.shape == mapping && len(rewrite.fields) == 0 {
		return false
	}
	return answer(s, chain[:3], "rewrite")
}

// answerAll makes a route that answers answer every request if its conditions cannot be read. It leaves out any other
// route.
func answerAll(s *salvage, chain []step, _ string) bool {
	route := chain[2].node
	if !route.answers() && !route.mentions("abort") {
		return dropRoute(s, chain, "")
	}
	if !route.answers() {
		answer(s, chain[:3], "match")
	}
	return false
}

// dropRoute leaves out the route whose conditions cannot be read.
func dropRoute(_ *salvage, chain []step, _ string) bool {
	routes, route := chain[1].node, chain[2].node
	if routes.drop(route); len(routes.items) == 0 {
		chain[0].node.drop(routes)
	}
	return true
}

// widen leaves out one condition of a route that answers, so that it answers more requests. A route that forwards
// requests loses the whole match instead, and forwards fewer.
func widen(s *salvage, chain []step, field string) bool {
	route, match := chain[2].node, last(chain)
	abort := route.get("fault") != nil && route.get("fault").mentions("abort")
	if !route.answers() && !abort {
		return false
	}
	if !route.answers() {
		answer(s, chain[:3], "match")
	}
	if match.shape != mapping || match.get(field) == nil {
		match.become(&node{shape: mapping})
		return true
	}
	match.drop(match.get(field))
	if field == "ignoreUriCase" {
		match.keep("name", "scheme", "method", "authority", "headers", "port", "gateways", "queryParams", "withoutHeaders", "sourceLabels",
			"sourceNamespace", "statPrefix")
	}
	delete(s.settled, match) // more conditions may be wrong
	return true
}

// noMirror leaves out a mirror if it is not known how many requests it gets.
func noMirror(_ *salvage, chain []step, _ string) bool {
	if mirror := chain[2].node.get("mirror"); mirror != nil {
		chain[2].node.drop(mirror)
	}
	return false
}

// takeOff removes a header from requests or responses if its value cannot be set, so that a client's own value does not
// pass.
func takeOff(_ *salvage, chain []step, _ string) bool {
	operations, name := chain[len(chain)-3].node, chain[len(chain)-1].name
	if !names.HeaderName(name) || strings.EqualFold(name, "host") {
		return false
	}
	remove := operations.get("remove")
	if remove == nil || remove.shape != list {
		remove = &node{shape: list}
		operations.set("remove", remove)
	}
	remove.items = append(remove.items, word(name))
	return false
}

// closeRemoval answers requests with an error if it is not known which headers the route removes. It leaves out a list
// that has lost all its names.
func closeRemoval(s *salvage, chain []step, _ string) bool {
	if remove := last(chain); remove.shape == list && len(remove.items) == 0 {
		return false
	}
	return closeHeaders(s, chain, "")
}

// remainder replaces the weight of a destination by what the other weights of the route leave of 100. It leaves out the
// weight if they leave nothing.
func remainder(_ *salvage, chain []step, _ string) bool {
	left := 100
	for _, d := range chain[len(chain)-3].node.items {
		if d.get("weight") != last(chain) {
			left -= weightOf(d)
		}
	}
	if left <= 0 {
		return false
	}
	last(chain).become(&node{shape: number, value: strconv.Itoa(left)})
	return true
}

// closeDestination leaves out a destination; the others get its share. If the others have no share, the destination
// stays and leads to a host that does not exist, because the route gives the others no requests.
func closeDestination(_ *salvage, chain []step, _ string) bool {
	all, bad := chain[len(chain)-2].node.items, last(chain)
	shared := slices.ContainsFunc(all, func(d *node) bool { return d != bad && weightOf(d) > 0 })
	if len(all) < 2 || shared {
		return false
	}
	bad.become(parsed(`{"destination": {"host": "` + unusable + `"}, "weight": 1}`))
	return true
}

// weightOf returns the weight of a destination, or 0 if that is absent or not a number.
func weightOf(destination *node) int {
	weight := destination.get("weight")
	if weight == nil {
		return 0
	}
	n, _ := strconv.Atoi(weight.value)
	return n
}

// closeHeaders answers requests with an error if it is not known what the route does with their headers: it may remove
// a header that says who a client is.
func closeHeaders(s *salvage, chain []step, _ string) bool { return answer(s, chain[:3], "headers") }

// closeConnections makes a route refuse the connections that it takes.
func closeConnections(_ *salvage, chain []step, _ string) bool {
	route := last(chain)
	if route.shape != mapping {
		return false
	}
	route.keep("match")
	route.set("route", parsed(`[{"destination": {"host": "`+unusable+`"}}]`))
	return true
}

// closeServerNames refuses TLS connections to the hosts.
func closeServerNames(_ *salvage, chain []step, _ string) bool {
	hosts := chain[0].node.get("hosts")
	if hosts == nil || hosts.shape != list {
		return false
	}
	routes := parsed(`[{"match": [{}], "route": [{"destination": {"host": "` + unusable + `"}}]}]`)
	routes.items[0].get("match").items[0].set("sniHosts", hosts.clone())
	last(chain).become(routes)
	return true
}
