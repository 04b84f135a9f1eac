package agent

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorded are the arguments and the environment with which Istio's agent wrote testdata/ROLE.json.
func recorded(t *testing.T, role string) config.Source {
	t.Helper()
	s := config.Source{
		Arguments: config.Arguments{Role: role, Domain: "a.svc.cluster.local"}, Dir: t.TempDir(), Version: "1.31.1",
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::2")},
		Environ: []string{"POD_NAME=web-0", "POD_NAMESPACE=a", "SERVICE_ACCOUNT=web", "INSTANCE_IP=10.0.0.1",
			"ISTIO_META_CLUSTER_ID=Kubernetes", "CA_ADDR=127.0.0.1:15012"},
	}
	switch role {
	case "router":
		s.Concurrency, s.LogLevel, s.OutlierLog, s.LogJSON = 4, "info,misc:error", "/dev/stdout", true
		s.Environ = append(s.Environ,
			`PROXY_CONFIG={"discoveryAddress":"istiod.istio-system.svc:15012","binaryPath":"envoy","tracing":{"datadog":{"address":"dd:8126"}},
			"envoyMetricsService":{"address":"ems:1"},"envoyAccessLogService":{"address":"als:1",
			  "tlsSettings":{"mode":"MUTUAL","clientCertificate":"/c","privateKey":"/k","caCertificates":"/ca"}},
			"statsCompression":false}`, "ISTIO_META_UNPRIVILEGED_POD=true", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "ISTIO_DELTA_XDS=false")
	case "sidecar":
		must.Succeed(t, os.CopyFS(filepath.Join(s.Dir, "etc/istio/pod"), os.DirFS("testdata/pod")))
		s.Environ = append(s.Environ, `PROXY_CONFIG={"discoveryAddress":"istiod.istio-system.svc:15012",
			"binaryPath":"envoy","concurrency":2,"proxyStatsMatcher":{"inclusionPrefixes":["pp"]},
			"runtimeValues":{"k1":"true","k2":"12"},"statusPort":15020}`,
			"ISTIO_META_DNS_CAPTURE=true", "ISTIO_META_APP_CONTAINERS=app", "ISTIO_CPU_LIMIT=2", "ISTIO_META_INTERCEPTION_MODE=REDIRECT",
			"ISTIO_META_WORKLOAD_NAME=web", "ISTIO_META_OWNER=kubernetes://x", "ISTIO_META_MESH_ID=m", "ISTIO_META_NODE_NAME=n1",
			"ISTIO_META_POD_PORTS=[\n {\"containerPort\":80,\"protocol\":\"TCP\"}]", "ISTIO_META_NETWORK=n",
			`ISTIO_METAJSON_MORE={"a":"b"}`)
	}
	return s
}

// differences are the intended differences between the bootstraps of Istio's agent and of this one, with their
// reasons, by path or a parent's path.
func differences() map[string]string {
	return map[string]string{
		`layered_runtime\..*hidden_envoy_deprecated_use_original_dst`:                 "no Envoy since 1.20 has this feature",
		`layered_runtime\..*coalesce_lb_rebuilds_on_batch_update`:                     "a guard of one release of Envoy's",
		`layered_runtime\..*max_program_size\.error_level`:                            "a number, not a text; Envoy reads both",
		`dynamic_resources\.ads_config\.grpc_services\[0\]\.envoy_grpc\.retry_policy`: "Envoy connects again within a second, not within 30",
		`static_resources\.clusters\.\w[\w-]*\.(lb_policy|dns_lookup_family|dns_refresh_rate|respect_dns_ttl)`: "the default is not written; " +
			"addresses of either family are taken; every tracer's name is resolved again",
		`static_resources\.clusters\.xds-grpc\.(max_requests_per_connection|upstream_connection_options)`: "a Unix socket needs no keepalive, " +
			"and its connection serves all streams",
		`static_resources\.clusters\.sds-grpc\.circuit_breakers`:            "as many streams as there are secrets share one connection",
		`admin\.ignore_global_conn_limit`:                                   "the admin API answers whoever else is connected",
		`static_resources\..*\.circuit_breakers\.thresholds\[0\]\.priority`: "DEFAULT is the default",
		`static_resources\.listeners\[0\].*http\.compressor`:                "the annotation statsCompression is followed",
		`overload_manager\..*max_active_downstream_connections`:             "64 bits are written as a text",
		`static_resources\..*\.protocol`:                                    "TCP is the default",
		`static_resources\.listeners\[\d\]\.name`:                           "HOST:PORT",
		`static_resources\.listeners\[\d\]\..*codec_type`:                   "AUTO is the default",
		`static_resources\..*_sds_secret_config.*initial_fetch_timeout|` +
			`static_resources\..*sds_config\.initial_fetch_timeout`: "a certificate may take any time to come, as those of the mesh",
	}
}

// leaves returns the values of a JSON document by their paths. Lists of named objects are keyed by their names, lists
// of patterns and tags by their text: the order of both does not matter.
func leaves(path string, v any, all map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if v["@type"] == "type.googleapis.com/udpa.type.v1.TypedStruct" { // another type URL of the same message
			inner, _ := v["value"].(map[string]any)
			typed := map[string]any{"@type": v["type_url"]}
			maps.Copy(typed, inner)
			v = typed
		}
		for k, value := range v {
			leaves(path+"."+k, value, all)
		}
	case []any:
		for i, value := range v {
			key := fmt.Sprintf("[%d]", i)
			if m, ok := value.(map[string]any); ok {
				if name, ok := m["name"].(string); ok && !strings.HasSuffix(path, "listeners") {
					key = "." + name
				} else if name, ok := m["tag_name"].(string); ok {
					key = "." + name
				}
			}
			if strings.HasSuffix(path, ".patterns") {
				text, _ := json.Marshal(value)
				key, value = "."+string(text), true
			}
			leaves(path+key, value, all)
		}
	default:
		text, _ := json.Marshal(v)
		all[strings.TrimPrefix(path, ".")] = string(text)
	}
}

func decode(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var v any
	must.Succeed(t, json.Unmarshal(text, &v))
	all := map[string]string{}
	leaves("", v, all)
	return all
}

// TestAsIstios checks that the bootstrap equals that of Istio's agent for the same arguments, environment and files,
// apart from differences.
func TestAsIstios(t *testing.T) {
	used := map[string]bool{}
	for _, role := range []string{"sidecar", "router"} {
		s := recorded(t, role)
		c, err := config.Read(s)
		must.Succeed(t, err)
		c.XDSSocket, c.SDSSocket = "etc/istio/proxy/XDS", "var/run/secrets/workload-spiffe-uds/socket"
		b, err := Bootstrap(c, s.LogJSON, s.OutlierLog)
		must.Succeed(t, err)
		if err := b.ValidateAll(); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		text, err := bootstrap.JSON(b)
		must.Succeed(t, err)
		golden := "testdata/" + role + ".golden.json"
		if *update {
			must.Succeed(t, os.WriteFile(golden, text, 0o644))
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(text) {
			t.Errorf("%s: the bootstrap differs from %s (%v): run with -update and read the difference", role, golden, err)
		}
		theirs, err := os.ReadFile("testdata/" + role + ".json")
		must.Succeed(t, err)
		ours, istios := decode(t, text), decode(t, theirs)
		for _, path := range slices.Sorted(maps.Keys(istios)) {
			compare(t, role, path, ours, istios, used)
		}
		for _, path := range slices.Sorted(maps.Keys(ours)) {
			if _, ok := istios[path]; !ok {
				compare(t, role, path, ours, istios, used)
			}
		}
	}
	for pattern := range differences() {
		if !used[pattern] {
			t.Errorf("nothing differs in %s", pattern)
		}
	}
}

func compare(t *testing.T, role, path string, ours, istios map[string]string, used map[string]bool) {
	t.Helper()
	if ours[path] == istios[path] {
		return
	}
	for pattern := range differences() {
		if regexp.MustCompile("^(" + pattern + ")").MatchString(path) {
			used[pattern] = true
			return
		}
	}
	t.Errorf("%s: %s is %s, Istio's agent has %s", role, path, ours[path], istios[path])
}
