package translate_test

import (
	"fmt"
	"strings"
)

// largeEntries returns writers of Services and ServiceEntries of n entries in two states.
func largeEntries() map[string]func(n, state int) string {
	list := func(n, state int, format string) string { // most stay, some go and some come
		var b strings.Builder
		for i := range n {
			i += state * n / 4
			fmt.Fprintf(&b, format, i, i>>8, i&0xff)
		}
		return b.String()
	}
	service := func(protocol, spec string) func(n, state int) string {
		return func(n, state int) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: big, namespace: n0}\nspec:\n  %s\n  ports:\n", spec) +
				list(n, state, "  - {name: "+protocol+"-%[1]d, port: 1%04[1]d, targetPort: 2%04[1]d}\n")
		}
	}
	entry := func(spec string, format string) func(n, state int) string {
		return func(n, state int) string {
			return "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: big, namespace: n0}\nspec:\n  hosts: " +
				"[big.example.com]\n" +
				fmt.Sprintf("  endpoints: [{address: 10.99.0.%d}, {address: 10.99.1.1}]\n", state+1) + spec + list(n, state, format)
		}
	}
	ports := func(protocol string) string {
		return "  - {name: p%[1]d, number: 1%04[1]d, protocol: " + protocol + "}\n"
	}
	addresses := func(protocol string) string {
		return "  resolution: STATIC\n  ports: [{name: a, number: 9000, protocol: " + protocol + "}, {name: b, number: 9001, protocol: " +
			protocol + "}]\n  addresses:\n"
	}
	return map[string]func(n, state int) string{
		"ServicePorts":               service("http", "clusterIP: 10.98.0.1\n  selector: {app: s0}"),
		"ServicePortsTCP":            service("tcp", "clusterIP: 10.98.0.1\n  selector: {app: s10}"),
		"ServicePortsSniffed":        service("x", "clusterIP: 10.98.0.1\n  selector: {app: s10}"),
		"ServicePortsHeadless":       service("tcp", "clusterIP: None\n  selector: {app: s0}"),
		"ServiceEntryPorts":          entry("  resolution: STATIC\n  ports:\n", ports("HTTP")),
		"ServiceEntryPortsTLS":       entry("  resolution: STATIC\n  ports:\n", ports("TLS")),
		"ServiceEntryPortsDNS":       entry("  resolution: DNS\n  ports:\n", ports("TCP")),
		"ServiceEntryAddresses":      entry(addresses("HTTP"), "  - 11.1.%[2]d.%[3]d\n"),
		"ServiceEntryAddressesTCP":   entry(addresses("TCP"), "  - 11.%[2]d.%[3]d.1\n"),
		"ServiceEntryAddressesRange": entry(addresses("TLS"), "  - 11.%[2]d.%[3]d.0/30\n"),
		"ServiceEntryIdentities": entry("  resolution: STATIC\n  ports: [{name: a, number: 9000, protocol: TCP}]\n "+
			" subjectAltNames:\n", "  - spiffe://cluster.local/ns/a/sa/%[1]d\n"),
	}
}
