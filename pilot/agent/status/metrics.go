package status

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/scrape"
)

// merged serves the metrics of Envoy, the agent and the application. If a source fails, the others are still served.
type merged struct {
	envoy       string   // URL of Envoy's metrics; empty if there is no Envoy
	apps        []string // URLs of the application's metrics
	maxEnvoy    int64    // limit in bytes of Envoy's metrics
	maxApp      int64    // limit in bytes of the application's metrics at each URL
	agent       prometheus.Gatherer
	client      *http.Client
	log         *slog.Logger
	scrapes     prometheus.Counter
	failures    *prometheus.CounterVec
	compressors sync.Pool // *gzip.Writer
}

const (
	openMetrics = "application/openmetrics-text"
	textType    = "text/plain; version=0.0.4; charset=utf-8"
	// acceptBoth is the Accept header for applications if Prometheus accepts both formats.
	acceptBoth = openMetrics + ";version=1.0.0,text/plain;version=0.0.4;q=0.5"

	scrapeTimeout = 10 * time.Second // if the request does not name one
	maxEnvoy      = 256 << 20        // bytes
	maxApp        = 64 << 20
	maxLine       = 1 << 20
)

// newMerged returns the handler of merged metrics. It reads the annotations of the application. It skips a target
// that cannot be scraped and logs why, because a pod must not fail because of its metrics.
func newMerged(o Options, listener net.Addr) (*merged, error) {
	m := &merged{
		envoy: o.EnvoyStats, agent: o.Gatherer, log: o.Log, maxEnvoy: cmp.Or(o.maxSource, maxEnvoy), maxApp: cmp.Or(o.maxSource, maxApp),
		client:  &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: idle}},
		scrapes: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_scrapes_total", Help: "Requests for merged metrics."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_scrape_failures_total", Help: "Failed requests to a source of merged metrics, by source.",
		}, []string{"type"}),
	}
	m.compressors.New = func() any {
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic(err) // unreachable: the level is valid
		}
		return w
	}
	if o.Registerer != nil {
		for _, c := range []prometheus.Collector{m.scrapes, m.failures} {
			if err := o.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("failed to register the metrics of the status port: %w", err)
			}
		}
	}
	if o.Scraping != "" {
		m.apps = targets(o.Scraping, ports(o, listener), o.Log)
	}
	return m, nil
}

// ports returns the ports of the agent and of its Envoy.
func ports(o Options, listener net.Addr) []uint16 {
	list := slices.Clone(o.Reserved)
	if tcp, ok := listener.(*net.TCPAddr); ok {
		list = append(list, uint16(tcp.Port)) //nolint:gosec // a port
	}
	for _, address := range []string{o.EnvoyAdmin, strings.TrimSuffix(strings.TrimPrefix(o.EnvoyStats, "http://"), statsPath)} {
		if at, err := netip.ParseAddrPort(address); err == nil {
			list = append(list, at.Port())
		}
	}
	return list
}

// targets returns the URLs of the application's metrics in a value of ISTIO_PROMETHEUS_ANNOTATIONS. It skips reserved
// ports, which are those of the agent and of its Envoy.
func targets(annotations string, reserved []uint16, log *slog.Logger) []string {
	const leftOut = "skipped metrics of the application"
	var c scrape.Config
	if err := json.Unmarshal([]byte(annotations), &c); err != nil {
		log.Warn(leftOut, "variable", "ISTIO_PROMETHEUS_ANNOTATIONS", "err", err)
		return nil
	}
	if c.Scrape == "false" {
		return nil
	}
	if len(c.Targets) == 0 {
		c.Targets = []scrape.Target{{Port: cmp.Or(c.Port, "80"), Path: c.Path}}
	}
	var urls []string
	for _, t := range c.Targets {
		port, err := scrape.ParsePort(t.Port, reserved...)
		if err != nil {
			log.Warn(leftOut, "variable", "ISTIO_PROMETHEUS_ANNOTATIONS", "port", t.Port, "err", err)
			continue
		}
		urls = append(urls, "http://localhost:"+strconv.Itoa(int(port))+scrape.WithSlash(t.Path))
	}
	return urls
}

// scrapeTime returns how long Prometheus waits for the response.
func scrapeTime(r *http.Request) time.Duration {
	if s, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64); err == nil && s > 0 && s < 3600 {
		return time.Duration(s * float64(time.Second))
	}
	return scrapeTimeout
}

// source is the response of a source, or the error.
type source struct {
	response *http.Response
	open     bool // the format is OpenMetrics
	err      error
}

func (m *merged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.scrapes.Inc()
	timeout := scrapeTime(r)
	// Each source must end before Prometheus times out, and the application before Envoy, because the application's
	// response is read first.
	ctx, cancel := context.WithTimeout(r.Context(), timeout*9/10)
	defer cancel()
	appCtx, cancelApp := context.WithTimeout(ctx, timeout*6/10)
	defer cancelApp()
	takesOpen := strings.Contains(r.Header.Get("Accept"), openMetrics)
	accept := textType
	if takesOpen {
		accept = acceptBoth
	}
	envoyURL := m.envoy
	if envoyURL != "" && r.URL.RawQuery != "" { // the query selects Envoy's metrics
		envoyURL += "?" + r.URL.RawQuery
	}
	envoy := m.ask(ctx, envoyURL, textType, r.Header)
	waiting := lists.Map(m.apps, func(url string) <-chan source { return m.ask(appCtx, url, accept, r.Header) })
	var apps []source
	for _, app := range waiting {
		a := <-app
		if a.response != nil {
			defer a.response.Body.Close()
		}
		apps = append(apps, a)
	}
	format, edit, contentType := expfmt.NewFormat(expfmt.TypeTextPlain), unchanged, textType
	if takesOpen {
		if open := openType(apps); open != "" {
			format, edit, contentType = expfmt.NewFormat(expfmt.TypeOpenMetrics), toOpenMetrics, open
		}
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	writer, finish := m.compressed(w, r)
	out := bufio.NewWriterSize(writer, 64<<10)
	e := <-envoy
	if e.err == nil && e.response != nil {
		e.err = copyLines(out, e.response.Body, m.maxEnvoy, edit)
		e.response.Body.Close()
	}
	m.recordResult("envoy", e.err)
	m.recordResult("agent", m.encode(out, format))
	for _, a := range apps {
		if a.err == nil {
			edit := unchanged
			if a.open && format.FormatType() != expfmt.TypeOpenMetrics {
				edit = toText
			}
			a.err = copyLines(out, a.response.Body, m.maxApp, func(line []byte) []byte {
				if bytes.Equal(bytes.TrimSpace(line), []byte("# EOF")) {
					return nil
				}
				return edit(line)
			})
		}
		m.recordResult("application", a.err)
	}
	if format.FormatType() == expfmt.TypeOpenMetrics {
		_, _ = out.WriteString("# EOF\n")
	}
	_ = out.Flush() // the client may have gone
	finish()
}

// openType returns the content type of the first response if all responses are in OpenMetrics, or "".
func openType(apps []source) string {
	contentType := ""
	for _, a := range apps {
		switch {
		case a.err != nil:
		case !a.open:
			return ""
		case contentType == "":
			contentType = a.response.Header.Get("Content-Type")
		}
	}
	return contentType
}

// compressed returns the writer of the response, which compresses if the client accepts gzip, and a function that
// ends it.
func (m *merged) compressed(w http.ResponseWriter, r *http.Request) (io.Writer, func()) {
	if !takesGzip(r.Header.Values("Accept-Encoding")) {
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := m.compressors.Get().(*gzip.Writer)
	z.Reset(w)
	return z, func() {
		_ = z.Close() // the client may have gone
		m.compressors.Put(z)
	}
}

// takesGzip reports whether the values of Accept-Encoding accept gzip.
func takesGzip(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); name != "gzip" && name != "*" {
			continue
		}
		quality, given := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		q, err := strconv.ParseFloat(quality, 64)
		return !given || err == nil && q > 0
	}
	return false
}

// ask requests the metrics of a source in the background. If the URL is empty, the result is the zero source.
func (m *merged) ask(ctx context.Context, url, accept string, requestHeader http.Header) <-chan source {
	answer := make(chan source, 1)
	safe.Go(m.log, "scrape", func() {
		s := source{err: errors.New("the request panicked")}
		defer func() { answer <- s }()
		s.response, s.err = m.get(ctx, url, accept, requestHeader) //nolint:bodyclose // the receiver closes it
		if s.response == nil {
			return
		}
		switch kind, _, _ := mime.ParseMediaType(s.response.Header.Get("Content-Type")); kind {
		case openMetrics:
			s.open = true
		case "application/vnd.google.protobuf":
			s.response.Body.Close()
			s.response, s.err = nil, errors.New("the source returned protobuf, which was not requested")
		}
	})
	return answer
}

func (m *merged) recordResult(source string, err error) {
	if err != nil {
		m.failures.WithLabelValues(source).Inc()
		m.log.Warn("failed to get metrics of a source: the merged metrics are incomplete", "source", source, "err", err)
	}
}

// get requests the metrics of a source. Both results are nil if the URL is empty.
func (m *merged) get(ctx context.Context, url, accept string, requestHeader http.Header) (*http.Response, error) {
	if url == "" {
		return nil, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	for _, name := range []string{"User-Agent", "X-Prometheus-Scrape-Timeout-Seconds"} {
		if v := requestHeader.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d of %s", resp.StatusCode, url)
	} else {
		resp.Body, err = decoded(resp.Body, resp.Header.Get("Content-Encoding"))
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// decoded returns a body without its content encoding. No encoding is requested, but some sources compress for every
// client. If decoding fails, the body is returned with the error.
func decoded(body io.ReadCloser, encoding string) (io.ReadCloser, error) {
	switch strings.ToLower(encoding) {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return body, fmt.Errorf("failed to decompress the source's gzip: %w", err)
		}
		return struct {
			io.Reader
			io.Closer
		}{z, body}, nil
	}
	return body, fmt.Errorf("the source returned the encoding %.40q, which was not requested", encoding)
}

// encode writes the agent's own metrics.
func (m *merged) encode(w io.Writer, format expfmt.Format) error {
	if m.agent == nil {
		return nil
	}
	families, err := m.agent.Gather()
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families { // even if Gather failed in part
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return err
}

// copyLines copies complete lines. It leaves out a line that is cut off by an error. It reads at most limit bytes.
func copyLines(w io.Writer, r io.Reader, limit int64, edit func(line []byte) []byte) error {
	limited := &io.LimitedReader{R: r, N: limit}
	in := bufio.NewReaderSize(limited, 64<<10)
	var partial []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if partial = append(partial, line...); len(partial) > maxLine {
				return fmt.Errorf("a line is longer than %d bytes", maxLine)
			}
			continue
		}
		if len(partial) > 0 {
			line = append(partial, line...)
			partial = nil
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case limited.N == 0:
			return fmt.Errorf("the metrics are longer than %d bytes", limit)
		case len(line) == 0:
			return nil
		default:
			line = append(bytes.Clone(line), '\n')
		}
		if line = edit(line); len(line) > 0 {
			if _, err := w.Write(line); err != nil {
				return nil //nolint:nilerr // the client has gone, which is no failure of the source
			}
		}
		if err != nil { // io.EOF
			return nil //nolint:nilerr // the end
		}
	}
}

// unchanged returns the line.
func unchanged(line []byte) []byte { return line }

// toOpenMetrics converts a line of the text format to OpenMetrics. A declaration of a counter's type has the name
// without _total. Blank lines and other comments are dropped.
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

// toText converts a line of OpenMetrics to the text format. It drops exemplars, converts timestamps to milliseconds,
// and converts types to those of the text format. A declaration of an unsupported type is dropped, so that its
// samples are untyped.
func toText(line []byte) []byte {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	if line[0] == '#' {
		words := strings.Fields(string(line))
		if len(words) < 2 || words[1] == "UNIT" {
			return nil
		}
		if len(words) != 4 || words[1] != "TYPE" {
			return line
		}
		name, kind := words[2], words[3]
		switch kind {
		case "counter":
			name += "_total"
		case "unknown":
			kind = "untyped"
		case "info":
			name, kind = name+"_info", "gauge"
		case "stateset":
			kind = "gauge"
		case "gauge", "summary", "histogram":
		default:
			return nil
		}
		return []byte("# TYPE " + name + " " + kind + "\n")
	}
	end := seriesEnd(line)
	words := strings.Fields(string(line[end:]))
	if len(words) < 2 { // no timestamp
		return line
	}
	out := append(bytes.Clone(line[:end]), ' ')
	out = append(out, words[0]...)
	if seconds, err := strconv.ParseFloat(words[1], 64); err == nil {
		out = strconv.AppendInt(append(out, ' '), int64(math.Round(seconds*1000)), 10)
	}
	return append(out, '\n')
}

// seriesEnd returns the offset of the end of a sample's name and labels.
func seriesEnd(line []byte) int {
	quoted, within := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			within = true
		case c == '}':
			return i + 1
		case !within && (c == ' ' || c == '\t'):
			return i
		}
	}
	return len(line)
}
