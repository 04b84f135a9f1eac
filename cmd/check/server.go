package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// Server is a running server whose debug pages are read.
type Server struct {
	// Get returns the status and the text of a path such as /debug/syncz.
	Get     debug.Getter
	Address string // the name of the server in commands
	Version string // the version of this program
	Now     time.Time
}

// ask returns the command that shows a page.
func (s Server) ask(path string) string {
	return "pilot-discovery request GET " + path + s.address()
}

func (s Server) address() string {
	if s.Address == "127.0.0.1:15014" { // the default
		return ""
	}
	return " --address " + s.Address
}

// get decodes a page of JSON.
func (s Server) get(ctx context.Context, path string, into any) error {
	status, text, err := s.Get(ctx, path)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("%s: %d: %s", path, status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Running checks a running server. It fails if the server does not answer.
func (r *Report) Running(ctx context.Context, s Server) error {
	status, text, err := s.Get(ctx, "/metrics")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s/metrics: %d: this is not the --monitoringAddr of a control plane", s.Address, status)
	}
	m, err := parseMetrics(text)
	if err != nil {
		return fmt.Errorf("%s/metrics: %w", s.Address, err)
	}
	r.begin("control plane")
	r.readiness(ctx, s)
	r.version(ctx, s)
	r.counted(m, "istiod_panics_total", "panics", "kubectl logs -n istio-system deploy/istiod | grep -A20 panic",
		"panics were recovered: please report them with the stack from the log")
	r.memory(m)
	r.begin("certificates")
	r.authority(m, s.Now)
	r.begin("configuration")
	r.sources(ctx, s, m)
	r.findings(ctx, s)
	r.begin("proxies")
	r.proxies(ctx, s)
	r.pushes(m)
	return nil
}

func (r *Report) readiness(ctx context.Context, s Server) {
	status, text, err := s.Get(ctx, "/ready")
	switch {
	case err != nil:
		r.wrong("ready", "", "%v", err)
	case status == http.StatusOK:
		r.ok("ready", "")
	case status == http.StatusNotFound:
		r.skip("ready", "", "the server has no page /ready: it is an older version")
	default:
		r.wrong("ready", s.ask("/debug/findings"), "%s", strings.TrimSpace(string(text)))
	}
}

func (r *Report) version(ctx context.Context, s Server) {
	status, text, err := s.Get(ctx, "/version")
	switch {
	case err != nil || status != http.StatusOK:
		r.skip("version", "", "the server does not report its version")
	case strings.TrimSpace(string(text)) != s.Version:
		r.warn("version", "", "the server is %s, this program is %s", strings.TrimSpace(string(text)), s.Version)
	default:
		r.ok("version", "%s", s.Version)
	}
}

// counted adds a warning if a counter of faults is not 0.
func (r *Report) counted(m metrics, metric, name, fix, what string) {
	if n := m.sum(metric); n > 0 {
		r.warn(name, fix, "%.0f %s", n, what)
	} else {
		r.ok(name, "none")
	}
}

// memory compares the memory of the process with its limit.
func (r *Report) memory(m metrics) {
	rss, limit := m.sum("process_resident_memory_bytes"), m.sum("go_gc_gomemlimit_bytes")
	const unlimited = 1 << 62
	switch {
	case rss == 0:
		r.skip("memory", "", "the server reports no resident memory: its system does not say it")
	case limit == 0 || limit >= unlimited:
		r.ok("memory", "%s, without a limit", bytesOf(rss))
	case rss > limit:
		r.wrong("memory", "kubectl -n istio-system set resources deploy/istiod --limits=memory=NEW",
			"the server uses %s, more than its limit of %s", bytesOf(rss), bytesOf(limit))
	case rss > 0.85*limit:
		r.warn("memory", "kubectl -n istio-system set resources deploy/istiod --limits=memory=NEW",
			"the server uses %s, close to its limit of %s", bytesOf(rss), bytesOf(limit))
	default:
		r.ok("memory", "%s of %s", bytesOf(rss), bytesOf(limit))
	}
}

func bytesOf(n float64) string { return strconv.FormatFloat(n/(1<<20), 'f', 0, 64) + " MiB" }

// plugIn returns the command that installs the certificate authority of the folder CERTS.
func plugIn(namespace string) string {
	return "kubectl -n " + namespace + " create secret generic cacerts --from-file=CERTS --dry-run=client -o yaml | kubectl apply -f -"
}

// authority checks the certificate authority by its metrics.
func (r *Report) authority(m metrics, now time.Time) {
	// The metrics do not say whether the authority is plugged in. A server replaces a self-signed one itself.
	plugin := plugIn("istio-system") + "  # if you have plugged in the CA; else /debug/findings says why it is not replaced"
	roots, ok := m.value("citadel_server_root_cert_expiry_timestamp")
	if !ok || roots <= 0 {
		r.skip("authority", "", "this server issues no certificates")
		return
	}
	r.expiry("root", time.Unix(int64(roots), 0), now, plugin)
	if chain, ok := m.value("citadel_server_cert_chain_expiry_timestamp"); ok && chain > 0 {
		r.expiry("chain", time.Unix(int64(chain), 0), now, plugin)
	}
	issued, failed := m.sum("citadel_server_success_cert_issuance_count"), m.sum("citadel_server_csr_sign_err_count")
	refused := m.sum("citadel_server_authentication_failure_count")
	if failed > 0 {
		r.warn("issued", "istioctl admin log --level ca:debug && kubectl logs -n istio-system deploy/istiod -f | grep 'certificate refused'",
			"%.0f issued, %.0f failed", issued, failed)
	} else {
		r.ok("issued", "%.0f, %.0f callers refused", issued, refused)
	}
}

// sources checks that the server can read the sources of configuration.
func (r *Report) sources(ctx context.Context, s Server, m metrics) {
	if stalled := m.labels("pilot_k8s_watch_stalled", 1); len(stalled) > 0 {
		r.wrong("API server", s.ask("/debug/findings"), "these resources cannot be read, so their last state stays in force: %s",
			strings.Join(stalled, ", "))
	}
	var clusters []struct {
		ID         string `json:"id"`
		SyncStatus string `json:"syncStatus"`
	}
	if err := s.get(ctx, "/debug/clusterz", &clusters); err != nil {
		r.skip("clusters", "", "%v", err)
		return
	}
	var unsynced []string
	for _, c := range clusters {
		if c.SyncStatus != "synced" {
			unsynced = append(unsynced, c.ID+" ("+c.SyncStatus+")")
		}
	}
	switch {
	case len(unsynced) > 0:
		r.wrong("clusters", s.ask("/debug/clusterz"), "%d of %d clusters are not synced: %s", len(unsynced), len(clusters),
			strings.Join(unsynced, ", "))
	case len(clusters) > 0:
		r.ok("clusters", "%s read", report.Amount(len(clusters), "cluster"))
	}
}

// shownFindings is how many findings are shown.
const shownFindings = 3

func (r *Report) findings(ctx context.Context, s Server) {
	list, err := s.findings(ctx)
	if err != nil {
		r.skip("findings", "", "%v", err)
		return
	}
	r.judge(s, list)
}

// judge adds the most severe findings, and how many there are.
func (r *Report) judge(s Server, list []diag.Diagnostic) {
	n := map[diag.Severity]int{}
	for _, d := range list {
		n[d.Severity]++
	}
	slices.SortStableFunc(list, func(a, b diag.Diagnostic) int { return int(b.Severity) - int(a.Severity) })
	for i, d := range list {
		if i == shownFindings || d.Severity < diag.Warning {
			break
		}
		add := r.warn
		if d.Severity == diag.Error {
			add = r.wrong
		}
		add("finding", "pilot-discovery explain "+d.Code, "%s", d)
	}
	if n[diag.Error]+n[diag.Warning] > shownFindings {
		r.warn("findings", s.ask("/debug/findings"), "%s and %s in all",
			report.Amount(n[diag.Error], "error"), report.Amount(n[diag.Warning], "warning"))
	} else if n[diag.Error]+n[diag.Warning] == 0 {
		r.ok("findings", "none")
	}
}

func (s Server) findings(ctx context.Context) (list []diag.Diagnostic, err error) {
	err = s.get(ctx, "/debug/findings", &list)
	return list, err
}

// slow is how long a proxy may take to acknowledge a response. A proxy that takes longer is reported.
const slow = 30 * time.Second

// standing holds the types of resources that a proxy has trouble with.
type standing struct {
	rejected []debug.TypeStatus
	stale    []debug.TypeStatus
}

func standingOf(p debug.ProxyStatus, now time.Time) (s standing) {
	for _, url := range slices.Sorted(maps.Keys(p.Resources)) {
		switch t := p.Resources[url]; {
		case t.State == debug.Failed:
			s.rejected = append(s.rejected, t)
		case t.State == debug.Stale && t.SentTime != nil && now.Sub(*t.SentTime) > slow:
			s.stale = append(s.stale, t)
		}
	}
	return s
}

// getOf reads a page of one replica, or of the server itself if the name is empty.
func (s Server) getOf(ctx context.Context, replica, question string, into any) error {
	if replica == "" {
		return s.get(ctx, "/debug/"+question, into)
	}
	list, err := debug.AskAll(ctx, s.Get, question)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(x debug.Replica) bool { return x.Name == replica })
	switch {
	case i < 0:
		return fmt.Errorf("replica %s has gone", replica)
	case list[i].Error != "":
		return fmt.Errorf("replica %s did not answer: %s", replica, list[i].Error)
	}
	return json.Unmarshal(list[i].Answer, into)
}

// proxies returns the answer of each replica, and the proxies of all replicas.
func (s Server) proxies(ctx context.Context) (list []debug.Replica, all []debug.ProxyStatus, err error) {
	if list, err = debug.AskAll(ctx, s.Get, "syncz"); err == nil {
		all, err = debug.ReadProxies(list)
	}
	return list, all, err
}

// answering checks that all replicas answer and have one version. It adds nothing if there is only one.
func (r *Report) answering(list []debug.Replica) {
	if len(list) < 2 {
		return
	}
	silent := 0
	for _, x := range list {
		switch {
		case x.Error != "":
			silent++
			r.wrong("replica", "kubectl -n istio-system describe pod "+x.Name, "%s did not answer, so its proxies are not checked: %s",
				x.Name, x.Error)
		case x.Version != list[0].Version:
			r.warn("replica", "kubectl -n istio-system rollout status deploy/istiod", "%s has version %s, and %s has %s", x.Name, x.Version,
				list[0].Name, list[0].Version)
		}
	}
	r.ok("replicas", "%d of %d answer", len(list)-silent, len(list))
}

func (r *Report) proxies(ctx context.Context, s Server) {
	list, all, err := s.proxies(ctx)
	if err != nil {
		r.skip("connected", "", "%v", err)
		return
	}
	r.answering(list)
	rejected, stale, waiting := 0, 0, 0
	var why []pushes.Rejection
	versions, examples := map[string]int{}, map[string]string{}
	const shown = 5
	for _, p := range all {
		standing := standingOf(p, s.Now)
		fix := "pilot-discovery proxy-status " + p.ProxyID + s.address()
		switch {
		case len(standing.rejected) > 0:
			if rejected++; rejected <= shown {
				t := standing.rejected[0]
				if why == nil {
					why = s.rejections(ctx)
				}
				r.wrong("rejected", mends(why, p.ProxyID, t.Type, fix), "%s rejects %s: %s", p.ProxyID, strings.ToUpper(t.Type),
					strings.TrimSpace(t.LastError))
			}
		case len(standing.stale) > 0:
			if stale++; stale <= shown {
				t := standing.stale[0]
				r.wrong("stale", fix, "%s has not acknowledged %s for %s", p.ProxyID, strings.ToUpper(t.Type), span(s.Now.Sub(*t.SentTime)))
			}
		case p.Waits != "":
			if waiting++; waiting <= shown {
				r.warn("waiting", fix, "%s waits: %s", p.ProxyID, p.Waits)
			}
		}
		versions[p.Version]++
		if first := examples[p.Version]; first == "" || p.ProxyID < first {
			examples[p.Version] = p.ProxyID
		}
	}
	if more := max(0, rejected-shown) + max(0, stale-shown) + max(0, waiting-shown); more > 0 {
		r.warn("more", "pilot-discovery proxy-status"+s.address(), "%d more proxies have problems", more)
	}
	delete(versions, "")
	server := s.version(ctx)
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		if says := skew(server, v); says != "" {
			one := examples[v]
			if n := versions[v]; n > 1 {
				one = fmt.Sprintf("%s, and %d more", one, n-1)
			}
			r.warn("version", restart(examples[v]), "%s (%s)", says, one)
		}
	}
	of := ""
	if names := slices.Sorted(maps.Keys(versions)); len(names) > 0 {
		of = " (" + strings.Join(names, ", ") + ")"
	}
	r.ok("connected", "%s%s, %d in sync", countProxies(len(all)), of, len(all)-rejected-stale-waiting)
}

func countProxies(n int) string {
	if n == 1 {
		return "1 proxy"
	}
	return strconv.Itoa(n) + " proxies"
}

// pushes checks how long proxies wait for changes.
func (r *Report) pushes(m metrics) {
	p99, n := m.quantile("pilot_proxy_convergence_time", 0.99)
	switch {
	case n == 0:
		r.ok("latency", "nothing has been pushed yet")
	case p99 > 10:
		r.warn("latency", "pilot-discovery pushes", "99 %% of proxies received a change only within %.3g s", p99)
	default:
		r.ok("latency", "99 %% of proxies received a change within %.3g s", p99)
	}
	if n := m.sum("pilot_xds_write_timeout"); n > 0 {
		r.warn("write timeouts", "kubectl logs -n istio-system deploy/istiod | grep 'does not read'",
			"%.0f streams were cut because the proxy did not read", n)
	}
}

func parseMetrics(text []byte) (metrics, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(bytes.NewReader(text))
}
