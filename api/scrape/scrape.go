package scrape

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DefaultPath is the default path of metrics.
const DefaultPath = "/metrics"

// Config is the value of ISTIO_PROMETHEUS_ANNOTATIONS. Its JSON is the format of Istio's agents.
type Config struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
	// Targets replaces Path and Port. An agent that does not know Targets uses Path and Port, which are those of the
	// first target.
	Targets []Target `json:"targets,omitempty"`
}

// Target is an endpoint of an application's metrics.
type Target struct {
	Port string `json:"port"`
	Path string `json:"path"`
}

// IsZero reports whether a Pod has no scrape configuration.
func (c Config) IsZero() bool {
	return c.Scrape == "" && c.Path == "" && c.Port == "" && len(c.Targets) == 0
}

// ParseTargets parses the value of the annotation prometheus.istio.io/scrape-targets: comma-separated PORT:PATH. A
// target without a path has DefaultPath. Empty entries are ignored.
func ParseTargets(text string) ([]Target, error) {
	var list []Target
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		port, path, _ := strings.Cut(entry, ":")
		if port = strings.TrimSpace(port); port == "" {
			return nil, fmt.Errorf("%.40q has no port: write PORT:PATH with commas between, for example 9090:/metrics", entry)
		}
		list = append(list, Target{Port: port, Path: WithSlash(strings.TrimSpace(path))})
	}
	return list, nil
}

// WithSlash returns a path that begins with a slash, or DefaultPath for an empty one. Without the slash the path would
// follow the port of a URL directly, and might name another host.
func WithSlash(path string) string {
	if path == "" {
		return DefaultPath
	}
	return "/" + strings.TrimPrefix(path, "/")
}

// reserved has the ports of Envoy and of the agent, with what they are for.
var reserved = map[uint16]string{
	15000: "Envoy's admin API", 15001: "Envoy's, for outbound connections",
	15004: "the agent's debug pages", 15006: "Envoy's, for inbound connections",
	15008: "Envoy's, for HBONE", 15020: "the agent's own", 15021: "Envoy's, for readiness", 15053: "the agent's DNS proxy",
	15090: "Envoy's own metrics, which are merged anyway",
}

// ParsePort parses the port of an application's metrics. The ports of Envoy and of the agent are errors, as are the
// ports in taken, on which this agent and its Envoy listen: their metrics are merged already, or the ports serve no
// metrics.
func ParsePort(text string, taken ...uint16) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%.40q is no port: write a number from 1 to 65535, not the name of a port", text)
	}
	port := uint16(n)
	use := reserved[port]
	if slices.Contains(taken, port) {
		use = "the agent's own"
	}
	if use != "" {
		return 0, fmt.Errorf("port %d is %s: write the port of the application", port, use)
	}
	return port, nil
}
