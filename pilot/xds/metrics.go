package xds

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// reasons are the values of pilot_push_triggers' label type.
var reasons = [...]string{
	"endpoint", "headlessendpoint", "config", "service", "proxy", "global", "unknown", "debug", "secret", "networks", "proxyrequest",
	"namespace", "cluster", "tag", "ambient",
}

// maxRejectLabels bounds the proxies in the labels of the reject gauges. pilot_total_xds_rejects counts all rejections.
const maxRejectLabels = 1000

// maxVersionLabels bounds the versions in the labels of pilot_xds, because clients choose their version.
const maxVersionLabels = 50

// metrics are the metrics of a Server. The labels are resolved in advance, so that a push looks up none.
type metrics struct {
	registry         prometheus.Registerer
	clients          *prometheus.GaugeVec
	pushes           map[string]prometheus.Counter
	sendErrors       map[string]prometheus.Counter
	pushTime         map[string]prometheus.Observer
	size             map[string]prometheus.Observer
	triggers         map[string]prometheus.Counter
	expired          map[string]prometheus.Counter
	rejects          map[string]prometheus.Counter
	rejectGauges     map[string]*prometheus.GaugeVec
	refusals         map[refusal]prometheus.Counter
	suppressed       prometheus.Counter
	internalErrors   prometheus.Counter
	deniedSecrets    prometheus.Counter
	writeTimeouts    prometheus.Counter
	workloadsFound   prometheus.Counter // streams whose workload became known in time
	workloadTimeouts prometheus.Counter // streams whose workload did not
	sendTime         prometheus.Observer
	queueTime        prometheus.Observer
	convergence      prometheus.Observer
	largest          atomic.Int64

	mu       sync.Mutex
	versions map[string]int                 // streams by version label
	rejected map[string]map[[2]string]int64 // by node: values of its gauges by type and error
}

// seconds are the histogram buckets: the bounds of Istio's dashboards, and finer ones below.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3, 5, 10, 20, 30}

func newMetrics(reg prometheus.Registerer) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	m := &metrics{
		registry: reg,
		clients:  gauge("pilot_xds", "Connected streams, by version of the proxy.", "version"),
		suppressed: counter(
			"xds_nack_suppressed", "Resources that were not sent again because the proxy had rejected the same version.",
		).WithLabelValues(),
		internalErrors: counter(
			"pilot_total_xds_internal_errors",
			"Translations that failed, and streams that a panic ended. Proxies keep the resources that they have.",
		).WithLabelValues(),
		deniedSecrets: counter("pilot_xds_denied_secrets", "Requests of proxies for secrets that they may not receive.").WithLabelValues(),
		writeTimeouts: counter(
			"pilot_xds_write_timeout", "Streams that were closed because the proxy did not read a response in time.",
		).WithLabelValues(),
		sendTime: histogram("pilot_xds_send_time", "Seconds that sending a response takes.", seconds).WithLabelValues(),
		queueTime: histogram(
			"pilot_proxy_queue_time", "Seconds from the publication of a snapshot until a stream takes it.", seconds,
		).WithLabelValues(),
		convergence: histogram(
			"pilot_proxy_convergence_time", "Seconds from the arrival of a change until a proxy was sent all resources that it changes.",
			seconds,
		).WithLabelValues(),
		pushes:       map[string]prometheus.Counter{},
		sendErrors:   map[string]prometheus.Counter{},
		pushTime:     map[string]prometheus.Observer{},
		size:         map[string]prometheus.Observer{},
		triggers:     map[string]prometheus.Counter{},
		expired:      map[string]prometheus.Counter{},
		rejects:      map[string]prometheus.Counter{},
		rejectGauges: map[string]*prometheus.GaugeVec{},
		refusals:     map[refusal]prometheus.Counter{},
		versions:     map[string]int{},
		rejected:     map[string]map[[2]string]int64{},
	}
	refusals := counter(
		"pilot_xds_refused_streams",
		"Streams that were refused or ended, by the bound that they reached: streams, names, versions, cohorts or memory.", "reason",
	)
	for _, r := range []refusal{refusedStreams, refusedNames, refusedVersions, refusedCohorts, refusedMemory} {
		m.refusals[r] = refusals.WithLabelValues(string(r))
	}
	waits := counter(
		"pilot_xds_waits_for_pod", "Streams whose first response waited until their workload was known, by result: found or timeout.", "result",
	)
	m.workloadsFound, m.workloadTimeouts = waits.WithLabelValues("found"), waits.WithLabelValues("timeout")
	pushes := counter("pilot_xds_pushes", "Responses sent, by type. The types that end in _senderr count failed sends.", "type")
	pushTime := histogram("pilot_xds_push_time", "Seconds that making a response takes, by type.", seconds, "type")
	size := histogram(
		"pilot_xds_config_size_bytes", "Bytes of the resources in a response, by type.", []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7}, "type",
	)
	expired := counter(
		"pilot_xds_expired_nonce", "Requests that answer a response after a newer response of the type was sent, by type.", "type",
	)
	rejects := counter("pilot_total_xds_rejects", "Responses that proxies rejected, by type.", "type")
	for _, t := range envoy.ShortTypes() {
		m.pushes[t] = pushes.WithLabelValues(t)
		m.sendErrors[t] = pushes.WithLabelValues(t + "_senderr")
		m.pushTime[t] = pushTime.WithLabelValues(t)
		m.size[t] = size.WithLabelValues(t)
		m.expired[t] = expired.WithLabelValues(t)
		m.rejects[t] = rejects.WithLabelValues(t)
	}
	for _, t := range []string{"cds", "eds", "lds", "rds"} {
		m.rejectGauges[t] = gauge(
			"pilot_xds_"+t+"_reject", "Responses of type "+t+" that connected proxies have rejected, by proxy and error code.", "node", "err",
		)
	}
	triggers := counter("pilot_push_triggers", "Pushes to proxies, by cause.", "type")
	for _, r := range reasons {
		m.triggers[r] = triggers.WithLabelValues(r)
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pilot_xds_recv_max", Help: "Bytes of the largest request since the start.",
	},
		func() float64 { return float64(m.largest.Load()) }))
	return m
}

// refusal is the reason why a stream is not served.
type refusal string

// Refusals.
const (
	refusedStreams  refusal = "streams"  // its identity or address has too many streams
	refusedNames    refusal = "names"    // its identity or address subscribes to too many names
	refusedVersions refusal = "versions" // its identity or address has named too many versions
	refusedCohorts  refusal = "cohorts"  // configuration for its identity's or address's proxies alone takes too much memory
	refusedMemory   refusal = "memory"   // the server has too little memory
)

// refused counts a stream that is not served.
func (m *metrics) refused(why refusal) { m.refusals[why].Inc() }

// waiting reports how many streams wait, by what they wait for.
func (m *metrics) waiting(counts map[string]func() int) {
	for what, count := range counts {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pilot_xds_waiting_streams", ConstLabels: prometheus.Labels{"for": what},
			Help: "Streams that wait, by what they wait for. Label for: stream, until another one ends, because --maxStreams or the memory " +
				"limit allows no more; arrival, until the first requests of other streams are read; memory, until there is some for " +
				"their first configuration.",
		}, func() float64 { return float64(count()) }))
	}
}

// groups registers the gauge of subscriber groups.
func (m *metrics) groups(count func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pilot_xds_subscriber_groups", Help: "Groups of streams that are sent the same resources, which are translated once.",
	}, func() float64 { return float64(count()) }))
}

// behind registers the gauges of proxies that have lacked configuration for long.
func (m *metrics) behind(count func(rejected bool) int) {
	for state, rejected := range map[string]bool{"behind": false, "rejected": true} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pilot_xds_proxies_behind", ConstLabels: prometheus.Labels{"state": state},
			Help: "Connected proxies that have lacked configuration for more than 30 seconds, by state: behind, they have not acknowledged it " +
				"or await a name in it; rejected, they have rejected it.",
		}, func() float64 { return float64(count(rejected)) }))
	}
}

func (m *metrics) trigger(reason string, n int) {
	c := m.triggers[reason]
	c = cmp.Or(c, m.triggers["unknown"])
	c.Add(float64(n))
}

func (m *metrics) request(size int) {
	for {
		was := m.largest.Load()
		if int64(size) <= was || m.largest.CompareAndSwap(was, int64(size)) {
			return
		}
	}
}

// connect counts a stream and returns its version label, which the caller passes to disconnect.
func (m *metrics) connect(version string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == "" || len(version) > 64 {
		version = "unknown"
	}
	if m.versions[version] == 0 && len(m.versions) >= maxVersionLabels {
		version = "other"
	}
	m.versions[version]++
	m.clients.WithLabelValues(version).Inc()
	return version
}

func (m *metrics) disconnect(version, node string, last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients.WithLabelValues(version).Dec()
	if m.versions[version]--; m.versions[version] == 0 {
		delete(m.versions, version)
		m.clients.DeleteLabelValues(version)
	}
	if last {
		for k := range m.rejected[node] {
			m.rejectGauges[k[0]].DeleteLabelValues(node, k[1])
		}
		delete(m.rejected, node)
	}
}

func (m *metrics) reject(typeURL, node string, code codes.Code) {
	t := envoy.ShortType(typeURL)
	m.rejects[t].Inc()
	gauge := m.rejectGauges[t]
	if gauge == nil {
		return
	}
	err := code.String()
	if code > codes.Unauthenticated { // clients choose the number
		err = codes.Unknown.String() // the number is whatever a client says
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rejected[node] == nil {
		if len(m.rejected) >= maxRejectLabels {
			return
		}
		m.rejected[node] = map[[2]string]int64{}
	}
	m.rejected[node][[2]string{t, err}]++
	gauge.WithLabelValues(node, err).Inc()
}

// sent records a response, the time it took to make, and the time it took to send.
func (m *metrics) sent(r *wire.Response, made, took time.Duration, err error) {
	t := envoy.ShortType(r.TypeURL)
	if err != nil {
		m.sendErrors[t].Inc()
		return
	}
	m.pushes[t].Inc()
	m.pushTime[t].Observe(made.Seconds())
	m.size[t].Observe(float64(r.Size()))
	m.sendTime.Observe(took.Seconds())
}
