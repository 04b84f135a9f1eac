package status

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// merged serves what Envoy, agent and application measure. A source that fails leaves the others.
type merged struct {
	envoy, app string // URLs, or empty
	maxEnvoy   int64  // bytes of Envoy's metrics
	maxApp     int64  // bytes of the application's metrics
	agent      prometheus.Gatherer
	client     *http.Client
	log        *slog.Logger
	scrapes    prometheus.Counter
	failures   *prometheus.CounterVec
}

const (
	openMetrics = "application/openmetrics-text"
	textType    = "text/plain; version=0.0.4; charset=utf-8"
	// acceptBoth is what applications are asked for where Prometheus takes both.
	acceptBoth = openMetrics + ";version=1.0.0,text/plain;version=0.0.4;q=0.5"

	scrapeTimeout = 10 * time.Second // where Prometheus does not say
	maxEnvoy      = 256 << 20        // bytes of its metrics
	maxApp        = 64 << 20
	maxLine       = 1 << 20
)

// newMerged reads the annotations of the application. The error names the field that is wrong.
func newMerged(o Options, own net.Addr) (*merged, error) {
	m := &merged{
		envoy: o.EnvoyStats, agent: o.Gatherer, log: o.Log, maxEnvoy: cmp.Or(o.largest, maxEnvoy), maxApp: cmp.Or(o.largest, maxApp),
		client:   &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: idle}},
		scrapes:  prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_scrapes_total", Help: "Requests for merged metrics."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_scrape_failures_total", Help: "Sources of merged metrics that failed."}, []string{"type"}),
	}
	if o.Registerer != nil {
		for _, c := range []prometheus.Collector{m.scrapes, m.failures} {
			if err := o.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("metrics of the status port: %w", err)
			}
		}
	}
	if o.Scraping == "" {
		return m, nil
	}
	var app struct{ Scrape, Path, Port string }
	if err := json.Unmarshal([]byte(o.Scraping), &app); err != nil {
		return nil, fmt.Errorf("ISTIO_PROMETHEUS_ANNOTATIONS: %w", err)
	}
	wanted, err := strconv.ParseBool(cmp.Or(app.Scrape, "false"))
	if err != nil {
		o.Log.Warn("the application's metrics are left out: prometheus.io/scrape is neither true nor false", "scrape", app.Scrape)
	}
	if !wanted {
		return m, nil //nolint:nilerr // reported above
	}
	port := cmp.Or(app.Port, "80")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("ISTIO_PROMETHEUS_ANNOTATIONS: port: %q is not a number from 1 to 65535", app.Port)
	}
	if tcp, ok := own.(*net.TCPAddr); ok && strconv.Itoa(tcp.Port) == port {
		return nil, fmt.Errorf("ISTIO_PROMETHEUS_ANNOTATIONS: port: %s is the agent's own; write the application's into prometheus.io/port", port)
	}
	m.app = "http://localhost:" + port + "/" + strings.TrimPrefix(cmp.Or(app.Path, "/metrics"), "/")
	return m, nil
}

// scrapeTime is how long Prometheus waits for an answer.
func scrapeTime(r *http.Request) time.Duration {
	if s, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64); err == nil && s > 0 && s < 3600 {
		return time.Duration(s * float64(time.Second))
	}
	return scrapeTimeout
}

func (m *merged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.scrapes.Inc()
	timeout := scrapeTime(r)
	// Each source ends before Prometheus gives up, and the application before Envoy, whose metrics are read after it.
	ctx, cancel := context.WithTimeout(r.Context(), timeout*9/10)
	defer cancel()
	appCtx, cancelApp := context.WithTimeout(ctx, timeout*6/10)
	defer cancelApp()
	type answer struct {
		resp *http.Response
		err  error
	}
	envoy := make(chan answer, 1)
	safe.Go(m.log, "scrape of Envoy", func() {
		a := answer{err: errors.New("panic")}
		defer func() { envoy <- a }()
		a.resp, a.err = m.get(ctx, m.envoy, textType, r.Header) //nolint:bodyclose // by who receives it
	})
	accept := textType
	if strings.Contains(r.Header.Get("Accept"), openMetrics) {
		accept = acceptBoth
	}
	app, appErr := m.get(appCtx, m.app, accept, r.Header)
	format, edit := expfmt.NewFormat(expfmt.TypeTextPlain), keep
	w.Header().Set("Content-Type", textType)
	if app != nil {
		defer app.Body.Close()
		switch kind, _, _ := mime.ParseMediaType(app.Header.Get("Content-Type")); kind {
		case openMetrics:
			if accept != acceptBoth {
				appErr, app = errors.New("the application sends OpenMetrics, which was not asked for"), nil
				break
			}
			format, edit = expfmt.NewFormat(expfmt.TypeOpenMetrics), toOpenMetrics
			w.Header().Set("Content-Type", app.Header.Get("Content-Type"))
		case "application/vnd.google.protobuf":
			appErr = errors.New("the application sends protobuf, which was not asked for")
			app = nil
		}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	e := <-envoy
	if e.err == nil && e.resp != nil {
		e.err = copyLines(out, e.resp.Body, m.maxEnvoy, edit)
		e.resp.Body.Close()
	}
	m.count("envoy", e.err)
	m.count("agent", m.encode(out, format))
	if app != nil {
		appErr = copyLines(out, app.Body, m.maxApp, func(line []byte) []byte {
			if bytes.Equal(line, []byte("# EOF\n")) {
				return nil
			}
			return line
		})
	}
	m.count("application", appErr)
	if format.FormatType() == expfmt.TypeOpenMetrics {
		_, _ = out.WriteString("# EOF\n")
	}
	_ = out.Flush() // a client that has gone
}

func (m *merged) count(source string, err error) {
	if err != nil {
		m.failures.WithLabelValues(source).Inc()
		m.log.Warn("metrics are incomplete", "source", source, "err", err)
	}
}

// get asks a source for its metrics. Without a source both results are nil.
func (m *merged) get(ctx context.Context, url, accept string, from http.Header) (*http.Response, error) {
	if url == "" {
		return nil, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	for _, name := range []string{"User-Agent", "X-Prometheus-Scrape-Timeout-Seconds"} {
		if v := from.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("HTTP %d of %s", resp.StatusCode, url)
	}
	return resp, nil
}

// encode writes the agent's own metrics.
func (m *merged) encode(w io.Writer, format expfmt.Format) error {
	if m.agent == nil {
		return nil
	}
	families, err := m.agent.Gather()
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families { // of an incomplete answer too
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return err
}

// copyLines copies whole lines: what fails in the middle of one leaves it out. It reads at most limit bytes.
func copyLines(w io.Writer, r io.Reader, limit int64, edit func(line []byte) []byte) error {
	limited := &io.LimitedReader{R: r, N: limit}
	in := bufio.NewReaderSize(limited, 64<<10)
	var long []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > maxLine {
				return fmt.Errorf("a line is longer than %d bytes", maxLine)
			}
			continue
		}
		if len(long) > 0 {
			line = append(long, line...)
			long = nil
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case limited.N == 0:
			return fmt.Errorf("longer than %d bytes", limit)
		case len(line) == 0:
			return nil
		default:
			line = append(bytes.Clone(line), '\n')
		}
		if line = edit(line); len(line) > 0 {
			if _, err := w.Write(line); err != nil {
				return nil //nolint:nilerr // the client has gone, which is no fault of the source
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end
		}
	}
}

// keep changes nothing.
func keep(line []byte) []byte { return line }

// toOpenMetrics makes a line of OpenMetrics of one of the text format: a counter is named without its _total where its
// type is declared, and there are no blank lines and no other comments.
func toOpenMetrics(line []byte) []byte {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	if line[0] != '#' {
		return line
	}
	words := strings.Fields(string(line))
	if len(words) != 4 || words[1] != "TYPE" {
		return nil
	}
	name, kind := words[2], words[3]
	switch kind {
	case "counter":
		base, ok := strings.CutSuffix(name, "_total")
		if name = base; !ok {
			kind = "unknown"
		}
	case "untyped":
		kind = "unknown"
	}
	return []byte("# TYPE " + name + " " + kind + "\n")
}
