package validation

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// size refuses an object that alone could fill the memory of every proxy and delay all pushes, because its content is
// repeated for each of its hosts, subsets or ports. It reports whether the object may be used. Security objects are not
// repeated, and may need long lists of addresses.
func size(k *kinds.Kind, p fieldRef) bool {
	before := len(p.findings.list)
	switch k {
	case kinds.VirtualService:
		p.repeated("hosts", p.at("http").node.text()+p.at("gateways").node.text())
	case kinds.DestinationRule:
		p.repeated("subsets", p.at("trafficPolicy").node.text())
	case kinds.ServiceEntry:
		at := func(field string) int { return len(p.at(field).items()) }
		clusters := at("hosts") * max(at("ports"), 1)
		if most := p.limits.EntryClusters; clusters > most {
			p.tooLarge("its hosts, times its ports, are %d, more than %d", clusters, most)
		}
		if n, most := clusters*(at("endpoints")+at("addresses")), p.limits.EntryEndpoints; n > most {
			p.tooLarge("its hosts, times its ports, times its endpoints and addresses, are %d, more than %d", n, most)
		}
	case kinds.Gateway, kinds.Sidecar, kinds.Service:
	default:
		return true
	}
	p.lists()
	return len(p.findings.list) == before
}

func (p fieldRef) tooLarge(format string, args ...any) {
	p.add(diag.Error, "Limit", "split the object", format, args...)
}

// lists checks the lengths of the lists below a field.
func (p fieldRef) lists() {
	if p.node.longest() <= p.limits.ListEntries {
		return
	}
	if n := len(p.node.items); n > p.limits.ListEntries {
		p.tooLarge("the list has %d entries, more than %d", n, p.limits.ListEntries)
		return
	}
	for _, item := range p.items() {
		item.lists()
	}
	p.each(func(_ string, value fieldRef) { value.lists() })
}

// repeated checks text that is repeated for each entry of a list.
func (p fieldRef) repeated(field string, bytes int) {
	if n, most := len(p.at(field).items()), p.limits.RepeatedText; n*bytes > most {
		p.at(field).tooLarge("%d %s, times the %d bytes that hold for each of them, are more than %d bytes", n, field, bytes, most)
	}
}

// longest returns the length of the longest list.
func (n *node) longest() int {
	if n == nil {
		return 0
	}
	most := len(n.items)
	for _, item := range n.items {
		most = max(most, item.longest())
	}
	for _, f := range n.fields {
		most = max(most, f.value.longest())
	}
	return most
}

// text returns about how many bytes the written value takes.
func (n *node) text() int {
	if n == nil {
		return 0
	}
	sum := len(n.value) + 1
	for _, item := range n.items {
		sum += item.text()
	}
	for _, f := range n.fields {
		sum += len(f.name) + 1 + f.value.text()
	}
	return sum
}
