package check

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// pages is a server with given answers. Other paths are not found.
type pages map[string]string

func (p pages) get(_ context.Context, path string) (int, []byte, error) {
	text, found := p[path]
	if !found {
		return http.StatusNotFound, nil, nil
	}
	if rest, unready := strings.CutPrefix(text, "503 "); unready {
		return http.StatusServiceUnavailable, []byte(rest), nil
	}
	return http.StatusOK, []byte(text), nil
}

func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func (p pages) server() Server {
	return Server{Get: p.get, Address: "127.0.0.1:15014", Version: "1.31.1", Now: now()}
}

// well returns a server without faults.
func well() pages {
	return pages{
		"/ready": "", "/version": "1.31.1", "/debug/clusterz": `[{"id": "west", "syncStatus": "synced"}]`, "/debug/findings": "[]",
		"/debug/syncz": `[{"proxy": "web-1.shop", "version": "1.31.1", "resources": {"x": {"type": "cds", "state": "SYNCED"}}}]`,
		"/metrics": `# TYPE citadel_server_root_cert_expiry_timestamp gauge
citadel_server_root_cert_expiry_timestamp 2e9
# TYPE pilot_proxy_convergence_time histogram
pilot_proxy_convergence_time_bucket{le="0.1"} 99
pilot_proxy_convergence_time_bucket{le="1"} 100
pilot_proxy_convergence_time_bucket{le="+Inf"} 100
pilot_proxy_convergence_time_sum 3
pilot_proxy_convergence_time_count 100
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1e8
# TYPE go_gc_gomemlimit_bytes gauge
go_gc_gomemlimit_bytes 1e9
`,
		"/debug/authorizationz?proxyID=web-1.shop": `{"authorization_policies": {"root_namespace": "istio-system"}, "proxies": {"web-1.shop": ` +
			`["shop/deny"]}}`,
		"/debug/adsz?namespace=shop": `{"clients": [{"address": "10.0.0.1:1", "labels": {"app": "web"}}]}`,
		"/debug/configz":             `[]`,
	}
}

// with returns the pages with one answer replaced.
func (p pages) with(path, text string) pages {
	p[path] = text
	return p
}

// Each fault of a server is found, and none on a server without faults.
func TestRunning(t *testing.T) {
	for _, x := range []struct {
		name  string
		pages pages
		state State
		says  string
	}{
		{"well", well(), OK, "99 % of proxies received a change within 0.1 s"},
		{"not ready", well().with("/ready", "503 not ready: waiting for Kubernetes"), Wrong, "waiting for Kubernetes"},
		{"another version", well().with("/version", "1.31.0"), Warning, "the server is 1.31.0"},
		{"an expired root", well().with("/metrics", strings.Replace(well()["/metrics"], "2e9", "1.7e9", 1)), Wrong, "root: it expired at"},
		{"a root near its end", well().with("/metrics", strings.Replace(well()["/metrics"], "2e9", "1.7685e9", 1)), Warning,
			"it expires in 14 days"},
		{"memory", well().with("/metrics", strings.Replace(well()["/metrics"], " 1e8", " 2e9", 1)), Wrong,
			"1907 MiB, more than its limit of 954 MiB"},
		{"slow pushes", well().with("/metrics", strings.Replace(well()["/metrics"], `le="1"} 100`, `le="30"} 100`, 1)+"# x\n"), OK,
			"within 0.1 s"},
		{"a watch",
			well().with("/metrics", well()["/metrics"]+"# TYPE pilot_k8s_watch_stalled gauge\npilot_k8s_watch_stalled{resource=\"pods\"} 1\n"),
			Wrong, "stays in force: pods"},
		{"a cluster", well().with("/debug/clusterz", `[{"id": "west", "syncStatus": "timeout"}]`), Wrong, "west (timeout)"},
		{"a finding",
			well().with("/debug/findings", `[{"severity": "error", "code": "IST0101", "object": "VirtualService shop/web", "message": "no host"}]`),
			Wrong, "no host [IST0101]"},
		{"advice", well().with("/debug/findings", `[{"severity": "info", "code": "IST0118", "message": "a name"}]`), OK, "findings: none"},
		{"a rejection",
			well().with("/debug/syncz",
				`[{"proxy": "web-1.shop", "resources": {"x": {"type": "lds", "state": "ERROR", "lastError": "no such filter"}}}]`), Wrong,
			"web-1.shop rejects LDS: no such filter"},
		{"stale",
			well().with("/debug/syncz",
				`[{"proxy": "web-1.shop", "resources": {"x": {"type": "lds", "state": "STALE", "sentTime": "2026-01-01T11:00:00Z"}}}]`), Wrong,
			"has not acknowledged LDS for 1h0m0s"},
		{"stale for a moment",
			well().with("/debug/syncz",
				`[{"proxy": "web-1.shop", "resources": {"x": {"type": "lds", "state": "STALE", "sentTime": "2026-01-01T11:59:58Z"}}}]`), OK,
			"1 in sync"},
		{"a proxy of the version before", well().with("/debug/syncz", `[{"proxy": "web-1.shop", "version": "1.30.6"}]`), OK,
			"1 proxy (1.30.6), 1 in sync"},
		{"old proxies", well().
			with("/debug/syncz", `[{"proxy": "web-2.shop", "version": "1.28.3"}, {"proxy": "web-1.shop", "version": "1.28.3"}]`), Warning,
			"proxies of version 1.28.3 are more than one minor version behind the server, which is 1.31.1: upgrade them to 1.31, or at least " +
				"to 1.30 " +
				"(web-1.shop, and 1 more)"},
		{"a proxy of two versions before", well().with("/debug/syncz", `[{"proxy": "web-1.shop", "version": "1.29.0"}]`), Warning,
			"version 1.29.0 are more than one"},
		{"a proxy of a later version", well().with("/debug/syncz", `[{"proxy": "web-1.shop", "version": "1.33.0"}]`), Warning,
			"proxies of version 1.33.0 are newer than the server, which is 1.31.1"},
		{"a proxy of no release", well().with("/debug/syncz", `[{"proxy": "web-1.shop", "version": "dev"}]`), OK, "1 proxy (dev), 1 in sync"},
		{"waiting", well().with("/debug/syncz", `[{"proxy": "web-1.shop", "waits": "for certificates"}]`), Warning,
			"web-1.shop waits: for certificates"},
	} {
		var r Report
		if err := r.Running(t.Context(), x.pages.server()); err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if !slices.ContainsFunc(r.Results, func(y Result) bool { return y.State == x.state && strings.Contains(plain(y), x.says) }) ||
			(x.state == Wrong) != r.Wrong() {
			t.Errorf("%s: nothing is %s and says %q: %+v", x.name, x.state, x.says, r.Results)
		}
		if strings.HasPrefix(x.name, "a proxy of") && x.state == OK && r.Count(Warning) > 0 {
			t.Errorf("%s: there is a warning: %+v", x.name, r.Results)
		}
		for _, y := range r.Results {
			if y.State == Wrong && y.Fix == "" {
				t.Errorf("%s: no command mends %+v", x.name, y)
			}
		}
	}
	away := Server{Get: func(context.Context, string) (int, []byte, error) { return 0, nil, errors.New("refused") }}
	if err := new(Report).Running(t.Context(), away); err == nil {
		t.Error("a server that does not answer is no error")
	}
	if err := new(Report).Running(t.Context(), pages{}.server()); err == nil {
		t.Error("a server without metrics is no error")
	}
}

// The report holds the state of one proxy, and only the findings about objects that apply to it.
func TestProxyOf(t *testing.T) {
	findings := `[{"severity": "error", "code": "A1", "object": "AuthorizationPolicy shop/other", "message": "other"},
		{"severity": "error", "code": "B1", "object": "AuthorizationPolicy shop/mine", "message": "mine"},
		{"severity": "error", "code": "C1", "object": "VirtualService away/web", "message": "away"},
		{"severity": "warning", "code": "D1", "object": "Telemetry istio-system/mesh", "message": "mesh"}]`
	p := well().with("/debug/findings", findings).with("/debug/configz", `[
		{"kind": "AuthorizationPolicy", "metadata": {"name": "other", "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "db"}}}},
		{"kind": "AuthorizationPolicy", "metadata": {"name": "mine", "namespace": "shop"},
			"spec": {"selector": {"matchLabels": {"app": "web"}}}}]`).
		with("/debug/syncz",
			`[{"proxy": "web-1.shop", "address": "10.0.0.1:1", "connectedAt": "2026-01-01T11:00:00Z", "resources": {"x": {"type": "cds", "state": `+
				`"SYNCED"}}}]`)
	var r Report
	must.Succeed(t, r.ProxyOf(t.Context(), p.server(), "web-1.shop"))
	var out strings.Builder
	must.Succeed(t, r.Write(&out, TextOptions{Format: "wide"}))
	for text, want := range map[string]bool{"mine [B1]": true, "mesh [D1]": true, "other": false, "away": false, "in sync: CDS": true,
		"policies: shop/deny": true, "for 1h0m0s": true} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q: %t expected in\n%s", text, want, out.String())
		}
	}
	r = Report{}
	if err := r.ProxyOf(t.Context(), p.server(), "gone.shop"); err != nil || !r.Wrong() {
		t.Errorf("a proxy that is not connected: %v, %+v", err, r.Results)
	}
}

// The certificates of an Envoy are read from its admin API.
func TestEnvoy(t *testing.T) {
	for end, state := range map[string]State{"2026-01-02T00:00:00Z": OK, "2026-01-01T12:30:00Z": Warning, "2026-01-01T11:00:00Z": Wrong} {
		var r Report
		p := pages{"/ready": "LIVE\n",
			"/certs": `{"certificates": [{"ca_cert": [{"expiration_time": "2036-01-01T00:00:00Z"}], "cert_chain": [{"expiration_time": "` +
				end + `"}]}]}`}
		if err := r.Envoy(t.Context(), p.get, now()); err != nil || r.Results[1].State != state {
			t.Errorf("%s: %v, %+v", end, err, r.Results)
		}
	}
	var r Report
	if err := r.Envoy(t.Context(), pages{"/ready": "503 PRE_INITIALIZING", "/certs": `{}`}.get, now()); err != nil || !r.Wrong() {
		t.Errorf("not ready: %v, %+v", err, r.Results)
	}
}

// A group without faults is one line. Control characters do not reach the terminal, and colours only if they are
// requested.
func TestText(t *testing.T) {
	var r Report
	r.begin("a")
	r.ok("one", "fine")
	r.ok("two", "")
	r.begin("bee")
	r.wrong("three", "mend it", "bad\x1b[2J\nnews")
	for _, x := range []struct {
		o    TextOptions
		want string
	}{
		{TextOptions{}, "✓ a    one: fine; two\n✗ bee  three: bad [2J news\n       → mend it\n1 check wrong, 0 warnings\n"},
		{TextOptions{Short: true}, "✗ bee  three: bad [2J news\n       → mend it\n1 check wrong, 0 warnings\n"},
		{TextOptions{Format: "wide"}, "✓ a    one: fine\n✓      two\n✗ bee  three: bad [2J news\n       → mend it\n1 check wrong, 0 warnings\n"},
		{TextOptions{Format: "name"}, "bee/three\n"},
	} {
		var out strings.Builder
		if err := r.Write(&out, x.o); err != nil || out.String() != x.want {
			t.Errorf("%+v: %v\n%s", x.o, err, out.String())
		}
	}
	var out strings.Builder
	if err := r.Write(&out, TextOptions{Color: true}); err != nil || !strings.Contains(out.String(), "\x1b[31m✗\x1b[0m bee") {
		t.Errorf("colours: %v %q", err, out.String())
	}
	for _, format := range []string{"json", "yaml"} {
		out.Reset()
		if err := r.Write(&out, TextOptions{Format: format}); err != nil || !strings.Contains(out.String(), "three") {
			t.Errorf("%s: %v %s", format, err, out.String())
		}
	}
}

// The remedy for a rejection is to delete the object that caused it, or to edit its file.
func TestRejections(t *testing.T) {
	const shown = "pilot-discovery proxy-status web-1.shop"
	rejecting := func(sources string) pages {
		return well().with("/debug/syncz",
			`[{"proxy": "web-1.shop", "resources": {"x": {"type": "lds", "state": "ERROR", "lastError": "no such filter"}}}]`).
			with("/debug/pushes?limit=0",
				`{"pushes": [{"id": 1, "rejections": [{"proxy": "web-1.shop", "count": 1, "type": "lds", "sources": [`+sources+`]}]}]}`)
	}
	for _, x := range []struct{ sources, fix string }{
		{`{"kind": "Service", "namespace": "shop", "name": "web"}, {"kind": "EnvoyFilter", "namespace": "shop", "name": "odd"}`,
			"kubectl -n shop delete envoyfilter odd  # or edit it: " + shown},
		{`{"kind": "Sidecar", "namespace": "shop", "name": "s"}, {"kind": "Gateway", "namespace": "shop", "name": "g", "position": ` +
			`"mesh/g.yaml:3:1", "changed": true}`, "edit mesh/g.yaml:3:1  # Gateway shop/g: " + shown},
		{`{"kind": "Service", "namespace": "shop", "name": "web"}`, shown},
	} {
		var r Report
		must.Succeed(t, r.Running(t.Context(), rejecting(x.sources).server()))
		i := slices.IndexFunc(r.Results, func(x Result) bool { return x.Name == "rejected" })
		if i < 0 || r.Results[i].State != Wrong || r.Results[i].Fix != x.fix {
			t.Errorf("%s: %+v", x.sources, r.Results)
		}
	}

	// The report about one proxy leads to the pushes, which hold rejections, unless it knows the object.
	var r Report
	rejected := rejecting(`{"kind": "Service", "namespace": "shop", "name": "web"}`)
	must.Succeed(t, r.ProxyOf(t.Context(), rejected.server(), "web-1.shop"))
	i := slices.IndexFunc(r.Results, func(x Result) bool { return x.Name == "LDS" })
	if i < 0 || r.Results[i].Fix != "pilot-discovery pushes" {
		t.Errorf("one proxy: %+v", r.Results)
	}
}
