package extension_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/inspecttest"
)

// TestIstiod compares the filters of every chain, the filters of extensions and what proxies subscribe to for them with
// what the real istiod sent.
func TestIstiod(t *testing.T) { inspecttest.Compare(t, 3, nil, observed) }

// observed returns what a proxy observes: each list of filters with the chains that have it, each filter of an
// extension, and each configuration that the proxy subscribes to.
func observed(listeners, configs map[string]any) string {
	places := inspecttest.Places{}
	var filters func(list any) []string
	filters = func(list any) []string {
		var names []string
		all, _ := list.([]any)
		for _, f := range all {
			filter := f.(map[string]any)
			name := filter["name"].(string)
			names = append(names, strings.TrimPrefix(name, prefix))
			if strings.HasPrefix(name, prefix) {
				places.Add("filter "+inspecttest.Line(filter), "")
			}
			if config, ok := filter["typedConfig"].(map[string]any); ok {
				for _, inner := range filters(config["httpFilters"]) {
					names = append(names, "  "+inner)
				}
			}
		}
		return names
	}
	for name, l := range listeners {
		listener := l.(map[string]any)
		chains, _ := listener["filterChains"].([]any)
		for _, c := range append(chains, listener["defaultFilterChain"]) {
			if chain, ok := c.(map[string]any); ok {
				called, _ := chain["name"].(string)
				match, _ := chain["filterChainMatch"].(map[string]any)
				places.Add("chain\n    "+strings.Join(filters(chain["filters"]), "\n    ")+"\n",
					strings.TrimSpace(name+" "+called+" "+inspecttest.Line(match)))
			}
		}
	}
	for _, c := range configs {
		places.Add("config "+versionOf.ReplaceAllString(inspecttest.Line(c), `$1"?"`), "")
	}
	return places.String()
}

// prefix begins the names of the filters of extensions.
const prefix = "extensions.istio.io/trafficextension/"

// versionOf matches the version of an object, which is any text.
var versionOf = regexp.MustCompile(`("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION":)"[^"]+"`)
