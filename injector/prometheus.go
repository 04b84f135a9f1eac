package injector

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// The annotations by which Prometheus finds what to scrape, and the path at which agents serve what the proxy and the
// application measure, together.
const (
	scrapeAnnotation = "prometheus.io/scrape"
	pathAnnotation   = "prometheus.io/path"
	portAnnotation   = "prometheus.io/port"
	mergedPath       = "/stats/prometheus"
)

// scraping is how the agent gets the application's metrics.
type scraping struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
}

// scrapingOf returns what annotations say of scraping, and their names. Prometheus takes every character of a name that
// is neither a letter nor a digit for the same.
func scrapingOf(annotations map[string]string) (s scraping, names []string) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		into := map[string]*string{"prometheus_io_scrape": &s.Scrape, "prometheus_io_path": &s.Path, "prometheus_io_port": &s.Port}[notAlphanumeric(name)]
		if into != nil {
			*into = annotations[name]
			names = append(names, name)
		}
	}
	return s, names
}

func notAlphanumeric(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, s)
}

// mergePrometheus has Prometheus scrape the agent, and writes for the agent where the application's metrics are.
func mergePrometheus(pod *corev1.Pod, m *mesh.Config) error {
	on := m.GetEnablePrometheusMerge().GetValue()
	if v, ok := pod.Annotations[mergeAnnotation]; ok {
		if b, err := strconv.ParseBool(v); err == nil {
			on = b
		}
	}
	if !on {
		return nil
	}
	was, names := scrapingOf(pod.Annotations)
	port := strconv.Itoa(int(m.GetDefaultConfig().GetStatusPort()))
	if b, err := strconv.ParseBool(was.Scrape); err == nil && !b || was.Port == port { // the agent is scraped already
		return nil
	}
	if proxy := proxyOf(pod); proxy != nil && was != (scraping{}) {
		text, err := toJSON(was)
		if err != nil {
			return err
		}
		setVariable(proxy, prometheusVariable, text)
	}
	for _, name := range names {
		delete(pod.Annotations, name)
	}
	pod.Annotations[scrapeAnnotation], pod.Annotations[pathAnnotation], pod.Annotations[portAnnotation] = "true", mergedPath, port
	return nil
}
