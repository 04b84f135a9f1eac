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
	"endpoint", "headlessendpoint", "config", "service", "proxy", "global", "unknown", "debug", "secret", "networks", "proxyrequest", "namespace", "cluster", "tag", "ambient",
}

// maxRejectLabels bounds the proxies that the reject gauges name at a time; pilot_total_xds_rejects counts them all.
const maxRejectLabels = 1000

// maxVersionLabels bounds the proxy versions that pilot_xds names at a time: the version is whatever a client says.
const maxVersionLabels = 50

// metrics are bound when they are made, so that a push looks up no label.
type metrics struct {
	registry       prometheus.Registerer
	clients        *prometheus.GaugeVec
	pushes         map[string]prometheus.Counter
	sendErrors     map[string]prometheus.Counter
	pushTime       map[string]prometheus.Observer
	size           map[string]prometheus.Observer
	triggers       map[string]prometheus.Counter
	expired        map[string]prometheus.Counter
	rejects        map[string]prometheus.Counter
	rejectGauges   map[string]*prometheus.GaugeVec
	refusals       map[refusal]prometheus.Counter
	suppressed     prometheus.Counter
	internalErrors prometheus.Counter
	deniedSecrets  prometheus.Counter
	writeTimeouts  prometheus.Counter
	waits          prometheus.Counter // for a workload that was found
	waitsInVain    prometheus.Counter
	sendTime       prometheus.Observer
	queueTime      prometheus.Observer
	convergence    prometheus.Observer
	largest        atomic.Int64

	mu       sync.Mutex
	versions map[string]int                 // streams by version label
	rejected map[string]map[[2]string]int64 // by node: type and error of each gauge that is set
}

// seconds are buckets from a millisecond on, in the places where Istio's dashboards look, and finer below.
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
		registry:       reg,
		clients:        gauge("pilot_xds", "Connected streams by version of the proxy.", "version"),
		suppressed:     counter("xds_nack_suppressed", "Resources not sent again because the proxy had rejected that version.").WithLabelValues(),
		internalErrors: counter("pilot_total_xds_internal_errors", "Translations that failed; what was sent before stands.").WithLabelValues(),
		deniedSecrets:  counter("pilot_xds_denied_secrets", "Secrets that proxies asked for and may not receive.").WithLabelValues(),
		writeTimeouts:  counter("pilot_xds_write_timeout", "Streams cut because the proxy did not read.").WithLabelValues(),
		sendTime:       histogram("pilot_xds_send_time", "Seconds in sending one response.", seconds).WithLabelValues(),
		queueTime:      histogram("pilot_proxy_queue_time", "Seconds from a snapshot to a stream taking it.", seconds).WithLabelValues(),
		convergence:    histogram("pilot_proxy_convergence_time", "Seconds from a change coming in to the proxy having been sent everything.", seconds).WithLabelValues(),
		pushes:         map[string]prometheus.Counter{},
		sendErrors:     map[string]prometheus.Counter{},
		pushTime:       map[string]prometheus.Observer{},
		size:           map[string]prometheus.Observer{},
		triggers:       map[string]prometheus.Counter{},
		expired:        map[string]prometheus.Counter{},
		rejects:        map[string]prometheus.Counter{},
		rejectGauges:   map[string]*prometheus.GaugeVec{},
		refusals:       map[refusal]prometheus.Counter{},
		versions:       map[string]int{},
		rejected:       map[string]map[[2]string]int64{},
	}
	refusals := counter("pilot_xds_refused_streams", "Streams refused or ended for one identity, one address or all streams had too much of something.", "reason")
	for _, r := range []refusal{refusedStreams, refusedNames, refusedCohorts, refusedMemory} {
		m.refusals[r] = refusals.WithLabelValues(string(r))
	}
	waits := counter("pilot_xds_waits_for_pod", "Streams whose first answer waited for their workload.", "result")
	m.waits, m.waitsInVain = waits.WithLabelValues("found"), waits.WithLabelValues("timeout")
	pushes := counter("pilot_xds_pushes", "Responses by type, and sends that failed.", "type")
	pushTime := histogram("pilot_xds_push_time", "Seconds in making one response.", seconds, "type")
	size := histogram("pilot_xds_config_size_bytes", "Bytes of the resources in one response.", []float64{1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7}, "type")
	expired := counter("pilot_xds_expired_nonce", "Requests that answer a response which was followed by another.", "type")
	rejects := counter("pilot_total_xds_rejects", "Responses that proxies rejected.", "type")
	for _, t := range envoy.ShortTypes() {
		m.pushes[t] = pushes.WithLabelValues(t)
		m.sendErrors[t] = pushes.WithLabelValues(t + "_senderr")
		m.pushTime[t] = pushTime.WithLabelValues(t)
		m.size[t] = size.WithLabelValues(t)
		m.expired[t] = expired.WithLabelValues(t)
		m.rejects[t] = rejects.WithLabelValues(t)
	}
	for _, t := range []string{"cds", "eds", "lds", "rds"} {
		m.rejectGauges[t] = gauge("pilot_xds_"+t+"_reject", "Rejected "+t+" responses of connected proxies.", "node", "err")
	}
	triggers := counter("pilot_push_triggers", "Pushes to proxies by what caused them.", "type")
	for _, r := range reasons {
		m.triggers[r] = triggers.WithLabelValues(r)
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pilot_xds_recv_max", Help: "Bytes of the largest request so far."},
		func() float64 { return float64(m.largest.Load()) }))
	return m
}

// refusal is why a stream is not served.
type refusal string

// Refusals.
const (
	refusedStreams refusal = "streams" // its identity or address has the most streams
	refusedNames   refusal = "names"   // its identity or address subscribes to too many names
	refusedCohorts refusal = "cohorts" // too much is kept for its identity's or address's proxies alone
	refusedMemory  refusal = "memory"  // the server has too little memory
)

// refused counts a stream that is not served.
func (m *metrics) refused(why refusal) { m.refusals[why].Inc() }

// groups has the number of subscriber groups shown.
func (m *metrics) groups(count func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pilot_xds_subscriber_groups", Help: "Groups of streams that are sent the same and are translated for once.",
	}, func() float64 { return float64(count()) }))
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

// connect counts a stream and returns the label that disconnect has to be called with.
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
	if code > codes.Unauthenticated {
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

// sent records one response that was made in one time and sent in another.
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
