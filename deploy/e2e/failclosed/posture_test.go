package failclosed

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// view is what a proxy has: resources as JSON, by the short name of their type (cds, eds, lds, rds) and their own name.
type view map[string]map[string]any

func emptyView() view { return view{"cds": {}, "eds": {}, "lds": {}, "rds": {}} }

// posture is what a proxy lets through, with the restrictions of each item. An item is a cluster, an endpoint, a filter
// chain of a listener, or a virtual host.
type posture map[string]map[string]bool

// postureOf returns the posture of a view, without the items of markers.
func postureOf(v view) posture {
	p := posture{}
	for name, c := range v["cds"] {
		p.add("cluster "+name, clusterRestrictions(c))
	}
	for name, e := range v["eds"] {
		walk(e, func(key string, value any) {
			list, _ := value.([]any)
			for _, endpoint := range list {
				if key == "lb_endpoints" {
					p.add(fmt.Sprintf("endpoint %s of %s", text(at(endpoint, "endpoint", "address")), name), endpointRestrictions(endpoint))
				}
			}
		})
	}
	for name, l := range v["lds"] {
		chains, _ := at(l, "filter_chains").([]any)
		if last := at(l, "default_filter_chain"); last != nil {
			chains = append(slices.Clone(chains), last)
		}
		for _, chain := range chains {
			p.add(fmt.Sprintf("listener %s for %s", name, text(at(chain, "filter_chain_match"))), chainRestrictions(chain))
		}
	}
	for name, r := range v["rds"] {
		hosts, _ := at(r, "virtual_hosts").([]any)
		for _, h := range hosts {
			if strings.HasPrefix(text(at(h, "domains")), `["removed.invalid/`) {
				continue // a virtual host that Envoy no longer has but still lists
			}
			p.add(fmt.Sprintf("route %s for %v", name, at(h, "name")), hostRestrictions(h))
		}
	}
	return p
}

// ofMarker matches the items of a marker, by its name and ports.
var ofMarker = regexp.MustCompile(markerName + `|^listener \S+_2[01]\d{3} |^route http\.21\d{3} `)

func (p posture) add(thing string, restrictions []string) {
	if ofMarker.MatchString(thing) || strings.HasSuffix(thing, "for block_all") {
		return
	}
	if p[thing] == nil {
		p[thing] = map[string]bool{}
	}
	for _, r := range restrictions {
		p[thing][r] = true
	}
}

// moreOpen returns the items that are open in p and were closed in before.
func (p posture) moreOpen(before posture) (list []string) {
	for _, thing := range slices.Sorted(maps.Keys(p)) {
		had, ok := before[thing]
		if !ok {
			list = append(list, "new: "+thing)
			continue
		}
		for _, r := range slices.Sorted(maps.Keys(had)) {
			if !p[thing][r] {
				list = append(list, fmt.Sprintf("%s lost %s", thing, r))
			}
		}
	}
	return list
}

// endpointRestrictions returns the transport socket of its cluster that an endpoint is called with.
func endpointRestrictions(e any) []string {
	if match := at(e, "metadata", "filter_metadata", "envoy.transport_socket_match"); match != nil {
		return []string{"transport socket for " + text(match)}
	}
	return nil
}

// clusterRestrictions returns how a cluster encrypts, and which servers it accepts.
func clusterRestrictions(c any) (list []string) {
	context := at(c, "transport_socket", "typed_config")
	if context == nil || !strings.Contains(text(context), "UpstreamTlsContext") {
		return nil
	}
	list = []string{"TLS"}
	walk(context, func(key string, value any) {
		switch key {
		case "match_typed_subject_alt_names", "match_subject_alt_names":
			list = append(list, "names "+text(value))
		case "trusted_ca", "validation_context_sds_secret_config", "crl", "tls_certificate_sds_secret_configs":
			list = append(list, key)
		}
	})
	return list
}

// chainRestrictions returns the requirements of a filter chain for clients, and its filters for requests.
func chainRestrictions(chain any) (list []string) {
	if socket := at(chain, "transport_socket"); socket != nil && strings.Contains(text(socket), "DownstreamTlsContext") {
		list = append(list, "TLS")
		walk(socket, func(key string, value any) {
			if key == "require_client_certificate" && value == true || key == "trusted_ca" || key == "crl" {
				list = append(list, key)
			}
		})
	}
	walk(at(chain, "filters"), func(key string, value any) {
		switch {
		case key == "cluster" && value == "BlackHoleCluster":
			list = append(list, "blocked")
		case key == "filters" || key == "http_filters":
			for _, f := range value.([]any) {
				list = append(list, fmt.Sprintf("filter %v", at(f, "name")))
			}
		case key == "rules":
			list = append(list, fmt.Sprintf("rules of action %v", at(value, "action")))
		}
	})
	filters, _ := at(chain, "filters").([]any)
	for _, f := range filters {
		list = append(list, fmt.Sprintf("filter %v", at(f, "name")))
	}
	return list
}

// hostRestrictions returns the answers of a virtual host that replace the application's. Every status from 400 refuses
// a request.
func hostRestrictions(h any) (list []string) {
	if tls := at(h, "require_tls"); tls != nil {
		list = append(list, fmt.Sprintf("TLS %v", tls))
	}
	routes, _ := at(h, "routes").([]any)
	for _, r := range routes {
		status, answers := at(r, "direct_response", "status").(float64)
		switch {
		case answers && status >= 400, at(r, "route", "cluster") == names.UnknownService: // no proxy has it
			list = append(list, "refusal of "+text(at(r, "match")))
		case answers:
			list = append(list, fmt.Sprintf("answer %v for %s", status, text(at(r, "match"))))
		}
	}
	return list
}

// at returns the value at a path of fields, or nil.
func at(v any, path ...string) any {
	for _, field := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[field]
	}
	return v
}

// walk calls do for each field of v, at any depth.
func walk(v any, do func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			do(key, v[key])
			walk(v[key], do)
		}
	case []any:
		for _, item := range v {
			walk(item, do)
		}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestMoreOpen: the comparison finds missing restrictions and new items, and treats a proxy that refuses everything as
// closed.
func TestMoreOpen(t *testing.T) {
	before := posture{"cluster a": {"TLS": true, "names x": true}, "cluster b": {}}
	for _, x := range []struct {
		name string
		now  posture
		want int
	}{
		{"the same", before, 0},
		{"stricter", posture{"cluster a": {"TLS": true, "names x": true, "crl": true}, "cluster b": {"TLS": true}}, 0},
		{"refused", posture{}, 0},
		{"without a restriction", posture{"cluster a": {"TLS": true}}, 1},
		{"new", posture{"cluster c": {"TLS": true}}, 1},
	} {
		if got := x.now.moreOpen(before); len(got) != x.want {
			t.Errorf("%s: %q, want %d", x.name, got, x.want)
		}
	}
}
