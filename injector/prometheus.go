package injector

import (
	"strconv"

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

// mergePrometheus has Prometheus scrape the agent, and tells the agent where the application's metrics are.
func mergePrometheus(pod *corev1.Pod, m *mesh.Config) error {
	on := m.GetEnablePrometheusMerge().GetValue()
	if v, ok := pod.Annotations[mergeAnnotation]; ok {
		if b, err := strconv.ParseBool(v); err == nil {
			on = b
		}
	}
	proxy := proxyOf(pod)
	if !on || proxy == nil {
		return nil
	}
	if v, ok := pod.Annotations[scrapeAnnotation]; ok && v != "true" {
		return nil
	}
	was := scraping{pod.Annotations[scrapeAnnotation], pod.Annotations[pathAnnotation], pod.Annotations[portAnnotation]}
	port := strconv.Itoa(int(m.GetDefaultConfig().GetStatusPort()))
	if was != (scraping{}) && (was.Path != mergedPath || was.Port != port) {
		text, err := toJSON(was)
		if err != nil {
			return err
		}
		setVariable(proxy, prometheusVariable, text)
	}
	pod.Annotations[scrapeAnnotation], pod.Annotations[pathAnnotation], pod.Annotations[portAnnotation] = "true", mergedPath, port
	return nil
}
