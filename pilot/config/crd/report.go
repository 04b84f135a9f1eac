package crd

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// report publishes the findings.
func (s *Source) report() {
	s.findings.Set(s.currentFindings(), config.ByObject, s.opts.Logger)
}

// outageDelay is how long an API server must be unreachable before that is a finding, so that restarts and single
// failures are none.
const outageDelay = 3 * time.Second

func (s *Source) currentFindings() []diag.Diagnostic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []diag.Diagnostic
	var away []string
	var why error
	var since time.Time
	look := func(w *watched, what string) {
		switch {
		case w.readError == nil:
		case time.Since(w.since) < outageDelay: // an API server that starts refuses some requests
		case apierrors.IsForbidden(w.readError):
			list = append(list, s.forbidden(w))
		default:
			away = append(away, what)
			if since.IsZero() || w.since.Before(since) {
				why, since = w.readError, w.since
			}
		}
	}
	if s.definitions != nil {
		look(&s.definitions.watched, "CustomResourceDefinition")
	}
	for f := range s.allFeeds {
		look(&f.watched, f.String())
		if f.doubtful() && f.absentFor() > outageDelay {
			list = append(list, diag.Diagnostic{
				Severity: diag.Error, Code: "NotServed", Object: f.String(),
				Message: fmt.Sprintf("the API server%s answers 404 (not found) to lists of %s, although there is such a kind: what was read before "+
					"stays in force, and a server that starts is not ready without it",
					s.where(), f.kind.Name),
				Fix: "look at what is between this server and the API server, and at the conditions of the kind's definition",
			})
		} else if f.absent() && f.gone && f.running && s.definitions != nil && !s.definitions.unreadable() && f.absentFor() > absentDelay {
			list = append(list, diag.Diagnostic{
				Severity: diag.Warning, Code: "NotServed", Object: "CustomResourceDefinition " + f.plural + "." + f.group,
				Message: fmt.Sprintf(
					"%s is defined, but the API server serves none of the versions %s%s", f.kind.Name, strings.Join(f.versions, ", "), s.where(),
				),
				Fix: "look at the conditions of the definition",
			})
		}
	}
	if len(away) > 0 {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "APIServer",
			Message: fmt.Sprintf(
				"the API server%s cannot be read: %s: %v; what was read before stays in force", s.where(), scope(away), bare(why),
			),
			Fix: "see that the API server runs and that this server reaches it; it is tried again",
		})
	}
	for _, c := range s.objectFindings {
		list = append(list, c.findings...)
	}
	return list
}

func (s *Source) where() string {
	if s.opts.Cluster == "" {
		return ""
	}
	return " of cluster " + s.opts.Cluster
}

// scope names the unreadable kinds. It has no count, which would change while an outage begins and ends.
func scope(away []string) string {
	if len(away) == 1 {
		return away[0]
	}
	return "several kinds"
}

// forbidden returns the finding about a missing permission.
func (s *Source) forbidden(w *watched) diag.Diagnostic {
	verb := "list and watch"
	if _, rest, ok := strings.Cut(w.readError.Error(), "cannot "); ok {
		if word, _, ok := strings.Cut(rest, " resource"); ok && !strings.Contains(word, " ") {
			verb = word
		}
	}
	resource := w.plural
	if w.group != "" {
		resource += "." + w.group
	}
	if w.selectors.namespace != "" {
		resource += " in namespace " + w.selectors.namespace
	}
	return diag.Diagnostic{
		Severity: diag.Error, Code: "NoWatch", Object: resource,
		Message: fmt.Sprintf("the API server%s does not let this server %s %s: what was read before stays in force", s.where(), verb, resource),
		Fix:     fmt.Sprintf("grant the verb %s on it to this server's ServiceAccount", verb),
	}
}

// bare returns the innermost cause of an error, without addresses that change with each attempt.
func bare(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// metrics are the metrics of one source. Sources share the collectors.
type metrics struct {
	cluster string
	errors  prometheus.Counter
	stalls  *stalls
}

// stalls is the metric of resources that cannot be read. A resource of a cluster may have several readers: for single
// names, or while a new kubeconfig replaces another.
type stalls struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	readers map[[2]string]int // number of readers by cluster and resource
	stalled map[[2]string]int
}

func newStalls() *stalls {
	return &stalls{
		desc: prometheus.NewDesc(
			"pilot_k8s_watch_stalled",
			"1 if a resource of an API server cannot be read, so that its last state stays in force, and 0 otherwise.",
			[]string{"cluster", "resource"}, nil),
		readers: map[[2]string]int{}, stalled: map[[2]string]int{},
	}
}

// Describe implements prometheus.Collector.
func (s *stalls) Describe(c chan<- *prometheus.Desc) { c <- s.desc }

// Collect implements prometheus.Collector.
func (s *stalls) Collect(c chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.readers {
		c <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(min(s.stalled[k], 1)), k[0], k[1])
	}
}

func (s *stalls) add(cluster, resource string, readers, stalled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := [2]string{cluster, resource}
	s.stalled[k] += stalled
	if s.readers[k] += readers; s.readers[k] == 0 {
		delete(s.readers, k)
		delete(s.stalled, k)
	}
}

func newMetrics(reg prometheus.Registerer, cluster string) *metrics {
	return &metrics{
		cluster: cluster,
		errors: registered(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "controller_sync_errors_total", Help: "Failed attempts to list or watch a resource of an API server.",
		})),
		stalls: registered(reg, newStalls()),
	}
}

// registered registers a collector, or returns the one that is already registered.
func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var twice prometheus.AlreadyRegisteredError
	if errors.As(err, &twice) {
		if have, ok := twice.ExistingCollector.(C); ok {
			return have
		}
	}
	return c
}

// count adds readers of a resource, and stalled ones.
func (m *metrics) count(resource string, readers, stalled int) {
	m.stalls.add(m.cluster, resource, readers, stalled)
}
