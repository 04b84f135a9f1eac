package injector

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/scrape"
)

// Annotations that tell Prometheus what to scrape, and the path at which agents serve the merged metrics of the proxy
// and the application.
const (
	scrapeAnnotation = "prometheus.io/scrape"
	pathAnnotation   = "prometheus.io/path"
	portAnnotation   = "prometheus.io/port"
	mergedPath       = "/stats/prometheus"
)

// scraping is the scrape configuration in a Pod's annotations, with the names of these annotations. Prometheus treats
// all characters of a name other than letters and digits as equal. A name is empty if the Pod does not have the
// annotation.
type scraping struct {
	scrape, path, port, targets                 string
	scrapeName, pathName, portName, targetsName string
	names                                       []string // all names; a name may occur more than once
}

// scrapingOf returns the scrape configuration in a Pod's annotations.
func scrapingOf(annotations map[string]string) scraping {
	var s scraping
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		value, as := &s.scrape, &s.scrapeName
		switch notAlphanumeric(name) {
		case "prometheus_io_scrape":
		case "prometheus_io_path":
			value, as = &s.path, &s.pathName
		case "prometheus_io_port":
			value, as = &s.port, &s.portName
		case "prometheus_istio_io_scrape_targets":
			value, as = &s.targets, &s.targetsName
		default:
			continue
		}
		*value, *as = annotations[name], name
		s.names = append(s.names, name)
	}
	return s
}

func notAlphanumeric(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, s)
}

// config returns the configuration of the agent that listens on a port. A warning names a list of targets without
// effect. The error names an annotation with a port that cannot be scraped.
func (s scraping) config(agent uint16) (c scrape.Config, warnings []string, err error) {
	c = scrape.Config{Scrape: s.scrape, Path: s.path, Port: s.port}
	if c.Path != "" {
		c.Path = scrape.WithSlash(c.Path)
	}
	if s.targetsName != "" {
		if c.Targets, err = scrape.ParseTargets(s.targets); err != nil {
			warnings = append(warnings, fmt.Sprintf("annotation %s has no effect: %v", s.targetsName, err))
		} else if len(c.Targets) == 0 {
			warnings = append(warnings, fmt.Sprintf("annotation %s has no effect: it names no target", s.targetsName))
		}
	}
	for _, t := range c.Targets {
		if _, err := scrape.ParsePort(t.Port, agent); err != nil {
			return c, nil, badAnnotation(s.targetsName, s.targets, err)
		}
	}
	if len(c.Targets) > 0 {
		c.Path, c.Port = c.Targets[0].Path, c.Targets[0].Port
	} else if c.Port != "" {
		if _, err := scrape.ParsePort(c.Port, agent); err != nil {
			return c, nil, badAnnotation(s.portName, s.port, err)
		}
	}
	return c, warnings, nil
}

// announceSecurePort tells Prometheus the port at which Istio's agent serves metrics over mTLS, unless an annotation
// names the port already.
func announceSecurePort(pod *corev1.Pod) {
	for name := range pod.Annotations {
		if notAlphanumeric(name) == notAlphanumeric(securePortAnnotation) {
			return
		}
	}
	if port := variable(proxyOf(pod), securePortVariable); port != "" && port != "0" {
		pod.Annotations[securePortAnnotation] = port
	}
}

// mergePrometheus makes Prometheus scrape the agent, and tells the agent where the application serves its metrics. The
// warnings name annotations without effect, the error an annotation that cannot be used.
func mergePrometheus(pod *corev1.Pod, m *mesh.Config) (warnings []string, err error) {
	was := scrapingOf(pod.Annotations)
	port := strconv.Itoa(int(m.GetDefaultConfig().GetStatusPort()))
	on := m.GetEnablePrometheusMerge().GetValue()
	if v, ok := pod.Annotations[mergeAnnotation]; ok {
		if b, err := strconv.ParseBool(v); err == nil {
			on = b
		}
	}
	reason := ""
	if !on {
		reason = "metrics are not merged"
	} else if b, err := strconv.ParseBool(was.scrape); err == nil && !b {
		reason = was.scrapeName + " is false"
	} else if was.port == port { // Prometheus scrapes the agent already
		reason = was.portName + " is the port of the agent"
	}
	if reason != "" {
		if was.targetsName != "" {
			warnings = append(warnings, fmt.Sprintf("annotation %s has no effect: %s", was.targetsName, reason))
		}
		return warnings, nil
	}
	c, warnings, err := was.config(uint16(m.GetDefaultConfig().GetStatusPort()))
	if err != nil {
		return nil, err
	}
	if proxy := proxyOf(pod); proxy != nil && !c.IsZero() {
		text, err := toJSON(c)
		if err != nil {
			return nil, err
		}
		setVariable(proxy, prometheusVariable, text)
	}
	for _, name := range was.names {
		delete(pod.Annotations, name)
	}
	pod.Annotations[scrapeAnnotation], pod.Annotations[pathAnnotation], pod.Annotations[portAnnotation] = "true", mergedPath, port
	return warnings, nil
}
