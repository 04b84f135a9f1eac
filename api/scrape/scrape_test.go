package scrape

import (
	"slices"
	"strings"
	"testing"
)

func TestParseTargets(t *testing.T) {
	for text, want := range map[string][]Target{
		"9090:/metrics, 9113:/nginx": {{"9090", "/metrics"}, {"9113", "/nginx"}},
		" 9090 , ,9091: ,9092:m:x,":  {{"9090", "/metrics"}, {"9091", "/metrics"}, {"9092", "/m:x"}},
		"9090:@192.0.2.1:80/":        {{"9090", "/@192.0.2.1:80/"}},
		"http:/m":                    {{"http", "/m"}}, // its port is checked by ParsePort
		"":                           nil,
		",":                          nil,
	} {
		if got, err := ParseTargets(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{":/metrics", "9090:/m,:", "9090, :9091"} {
		if got, err := ParseTargets(text); err == nil || !strings.Contains(err.Error(), "has no port") {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestParsePort(t *testing.T) {
	for text, want := range map[string]string{
		"9090": "", "0080": "", "65535": "", "metrics": "no port", "": "no port", "0": "no port", "65536": "no port",
		"-1": "no port", "+80": "no port", "80@192.0.2.1:80": "no port", "8080/x": "no port", "15000": "admin API",
		"15001": "outbound", "15004": "debug pages", "15006": "inbound", "15008": "HBONE", "15020": "the agent's own",
		"015020": "the agent's own", "15021": "readiness", "15053": "DNS", "15090": "Envoy's own metrics",
		"15999": "the agent's own",
	} {
		switch port, err := ParsePort(text, 15999); {
		case want == "" && (err != nil || port == 0):
			t.Errorf("%q: %d %v", text, port, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %d %v, want %s", text, port, err, want)
		}
	}
}
