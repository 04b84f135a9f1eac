package config

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// source is the input of an agent in a pod, with additional variables and files.
func source(t *testing.T, files map[string]string, environ ...string) Source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return Source{
		Arguments: Arguments{Mesh: "./etc/istio/config/mesh"}, Dir: dir, Version: "1.31.1",
		Environ: append([]string{"POD_NAME=web-0", "POD_NAMESPACE=a", "INSTANCE_IP=10.0.0.1"}, environ...),
	}
}

// TestPrecedence checks that the annotation has precedence over PROXY_CONFIG, PROXY_CONFIG over the mesh's default,
// and arguments over all.
func TestPrecedence(t *testing.T) {
	files := map[string]string{"etc/istio/config/mesh": "defaultConfig: {drainDuration: 10s, statusPort: 1, " +
		"concurrency: 1, proxyMetadata: {ISTIO_META_A: mesh, ISTIO_META_B: mesh}}\ntrustDomain: other"}
	c, err := Read(source(t, files))
	must.Succeed(t, err)
	if c.Envoy.Drain != 10*time.Second || c.Security.TrustDomain != "other" || c.Envoy.Concurrency != 1 ||
		c.Proxy.GetProxyAdminPort() != 15000 {
		t.Errorf("of the mesh: %+v, %+v", c.Envoy, c.Security)
	}
	files["etc/istio/pod/annotations"] = "proxy.istio.io/config=\"statusPort: 3\\nproxyMetadata: {ISTIO_META_B: annotation, " +
		"MINIMUM_DRAIN_DURATION: 7s}\\n\"\n"
	s := source(t, files, `PROXY_CONFIG={"statusPort":2,"concurrency":2,"terminationDrainDuration":"8s"}`, "ISTIO_META_A=environment",
		"ISTIO_CPU_LIMIT=9", "TRUST_DOMAIN=third")
	c, err = Read(s)
	must.Succeed(t, err)
	m := c.Node.GetMetadata().GetFields()
	if c.Proxy.GetStatusPort() != 3 || c.Envoy.Concurrency != 2 || c.Envoy.Drain != 10*time.Second ||
		c.Envoy.TerminationDrain != 8*time.Second || c.Security.TrustDomain != "third" ||
		c.Envoy.MinimumDrain != 7*time.Second || m["A"].GetStringValue() != "environment" || m["B"].GetStringValue() != "annotation" {
		t.Errorf("%v, %+v, %v", c.Proxy, c.Envoy, m)
	}
	s.Concurrency, s.Environ = 4, append(s.Environ, "TERMINATION_DRAIN_DURATION_SECONDS=0")
	if c, err = Read(s); err != nil || c.Envoy.Concurrency != 4 || c.Envoy.TerminationDrain != 0 {
		t.Errorf("%+v, %v", c.Envoy, err)
	}
	c, err = Read(source(t, nil, "ISTIO_CPU_LIMIT=9"))
	if err != nil || c.Envoy.Concurrency != 9 || c.Proxy.GetConcurrency().GetValue() != 9 {
		t.Errorf("concurrency is not that of the limit: %v, %v", c, err)
	}
}

// TestSingleAnnotations checks that the annotations for the ports of the agent and for the control plane have
// precedence over the annotation with a ProxyConfig.
func TestSingleAnnotations(t *testing.T) {
	c, err := Read(source(t, map[string]string{"etc/istio/pod/annotations": `proxy.istio.io/config="{statusPort: 3, discoveryAddress: a:1}"
status.sidecar.istio.io/port="15120"
sidecar.istio.io/discoveryAddress="istiod.other.svc:15012"
`}))
	if err != nil || c.Proxy.GetStatusPort() != 15120 || c.Security.Discovery != "istiod.other.svc:15012" {
		t.Errorf("%v, %v", c, err)
	}
}

// TestSecurity: where certificates, tokens and roots come from.
func TestSecurity(t *testing.T) {
	s := source(t, nil)
	c, err := Read(s)
	must.Succeed(t, err)
	d := c.Security
	if d.Discovery != "istiod.istio-system.svc:15012" || d.CA != d.Discovery || d.ServerName != "istiod.istio-system.svc" ||
		d.Token != filepath.Join(s.Dir, "var/run/secrets/tokens/istio-token") ||
		d.CARoots != filepath.Join(s.Dir, "var/run/secrets/istio/root-cert.pem") || d.DiscoveryRoots != d.CARoots || d.TTL != 24*time.Hour ||
		d.RSA != 0 || d.Grace != 0.5 {
		t.Errorf("%+v", d)
	}
	c, err = Read(source(t, nil, "CA_ADDR=ca.b.svc:15012", "XDS_ROOT_CA=SYSTEM", "WORKLOAD_RSA_KEY_SIZE=3072", "JWT_POLICY=none",
		"ISTIOD_SAN=other", "PILOT_CERT_PROVIDER=kubernetes", "SECRET_TTL=1h"))
	must.Succeed(t, err)
	if d = c.Security; d.CA != "ca.b.svc:15012" || d.DiscoveryRoots != System || d.RSA != 3072 || d.Token != "" ||
		d.ServerName != "other" || d.CAServerName != "other" ||
		d.CARoots != "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" || d.TTL != time.Hour {
		t.Errorf("%+v", d)
	}
	const folder = "var/run/secrets/workload-spiffe-credentials/"
	files := map[string]string{folder + "certificates.pem": "", folder + "private_key.pem": "", folder + "ca_certificates.pem": ""}
	s = source(t, files)
	if c, err = Read(s); err != nil || !c.Security.Files || c.Security.Mounted ||
		c.Security.Key != filepath.Join(s.Dir, folder, "private_key.pem") || c.Security.Token == "" {
		t.Errorf("a certificate of the platform: %+v, %v", c.Security, err)
	}
	delete(files, folder+"private_key.pem")
	if c, err = Read(source(t, files)); err != nil || c.Security.Files {
		t.Errorf("a certificate without its key: %+v, %v", c.Security, err)
	}
	if c, err = Read(source(t, nil, "WORKLOAD_IDENTITY_SOCKET_FILE=spire")); err != nil || !c.ExternalSDS ||
		filepath.Base(c.SDSSocket) != "spire" {
		t.Errorf("certificates of another server: %+v, %v", c, err)
	}
	if !Plaintext("istiod:15010") || Plaintext("istiod:15012") {
		t.Error("15010 alone is plaintext")
	}
}

// TestDNS checks how long a DNS server has for its answer.
func TestDNS(t *testing.T) {
	for variable, want := range map[string]time.Duration{"DNS_FORWARD_TIMEOUT=": 5 * time.Second, "DNS_FORWARD_TIMEOUT=2s": 2 * time.Second} {
		if c, err := Read(source(t, nil, variable)); err != nil || c.DNSTimeout != want {
			t.Errorf("%s: %v, %v", variable, c.DNSTimeout, err)
		}
	}
}

// TestNode checks what labels and variables contribute to the node.
func TestNode(t *testing.T) {
	s := source(t, map[string]string{"etc/istio/pod/labels": "app=\"web\"\nistio-locality=\"r.z.s\"\n"},
		`ISTIO_METAJSON_LABELS={"app":"no","x":"y"}`, "ISTIO_META_INTERCEPTION_MODE=TPROXY")
	s.Role, s.Addresses = "router", []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"),
		netip.MustParseAddr("fe80::1")}
	c, err := Read(s)
	must.Succeed(t, err)
	m := c.Node.GetMetadata().GetFields()
	labels := m["LABELS"].GetStructValue().GetFields()
	if c.Node.Id != "router~10.0.0.1~web-0.a~a.svc.cluster.local" || c.Node.Cluster != "web.a" || c.Node.Locality.GetZone() != "z" ||
		m["INSTANCE_IPS"].GetStringValue() != "10.0.0.1,fd00::1" ||
		labels["app"].GetStringValue() != "web" || labels["x"].GetStringValue() != "y" ||
		m["INTERCEPTION_MODE"].GetStringValue() != "TPROXY" || c.IPv6 {
		t.Errorf("%v", c.Node)
	}
}

// TestLocality checks which labels of the Pod say where the proxy runs.
func TestLocality(t *testing.T) {
	const kubernetes = "topology.kubernetes.io/region=\"r1\"\ntopology.kubernetes.io/zone=\"z1\"\n"
	for labels, want := range map[string]string{
		"app=\"web\"\n": "//",
		kubernetes:      "r1/z1/",
		kubernetes + "topology.istio.io/subzone=\"s1\"\n":                     "r1/z1/s1",
		kubernetes + "istio-locality=\"r2.z2\"\n":                             "r2/z2/",
		"topology.istio.io/locality=\"r3.z3.s3\"\nistio-locality=\"r2.z2\"\n": "r3/z3/s3",
		"topology.istio.io/locality=\"r3.x/z3.x\"\n" + kubernetes:             "r3.x/z3.x/",
	} {
		c, err := Read(source(t, map[string]string{"etc/istio/pod/labels": labels}))
		must.Succeed(t, err)
		l := c.Node.GetLocality()
		if got := l.GetRegion() + "/" + l.GetZone() + "/" + l.GetSubZone(); got != want {
			t.Errorf("%q: %s, want %s", labels, got, want)
		}
	}
}

// TestVirtualMachine checks that a host without POD_NAME has its own name.
func TestVirtualMachine(t *testing.T) {
	c, err := Read(Source{Hostname: "VM1.example.com", Environ: []string{"POD_NAMESPACE=a", "INSTANCE_IP=10.0.0.1"}})
	if err != nil || c.Node.GetId() != "sidecar~10.0.0.1~vm1.a~a.svc.cluster.local" {
		t.Errorf("%v, %v", c.Node, err)
	}
}

// TestRefused checks that errors name the wrong setting and how to write it.
func TestRefused(t *testing.T) {
	for want, s := range map[string]Source{
		`role "x": write sidecar or router`:  {Arguments: Arguments{Role: "x"}},
		"set POD_NAMESPACE":                  {Hostname: "vm"},
		`INSTANCE_IP="x"`:                    source(t, nil, "INSTANCE_IP=x"),
		"PROXY_CONFIG":                       source(t, nil, "PROXY_CONFIG={"),
		"SECRET_TTL=\"x\": write a duration": source(t, nil, "SECRET_TTL=x"),
		"DNS_FORWARD_PARALLEL":               source(t, nil, "DNS_FORWARD_PARALLEL=maybe"),
		`DNS_FORWARD_TIMEOUT="5"`:            source(t, nil, "DNS_FORWARD_TIMEOUT=5"),
		"CA_PROVIDER":                        source(t, nil, "CA_PROVIDER=GoogleCA"),
		"PILOT_CERT_PROVIDER":                source(t, nil, "PILOT_CERT_PROVIDER=x"),
		"SECRET_GRACE_PERIOD_RATIO":          source(t, nil, "SECRET_GRACE_PERIOD_RATIO=2"),
		"annotation proxy.istio.io/config": source(t,
			map[string]string{"etc/istio/pod/annotations": `proxy.istio.io/config="statusPort: x"` + "\n"}),
		`annotation status.sidecar.istio.io/port: "x"`: source(t,
			map[string]string{"etc/istio/pod/annotations": `status.sidecar.istio.io/port="x"` + "\n"}),
		"labels:2:":                             source(t, map[string]string{"etc/istio/pod/labels": "a=\"b\"\nc=d\n"}),
		"--meshConfig":                          source(t, map[string]string{"etc/istio/config/mesh": "defaultConfig: 3"}),
		"ISTIO_METAJSON_X":                      source(t, nil, "ISTIO_METAJSON_X=[]"),
		"statusPort 70000":                      source(t, nil, `PROXY_CONFIG={"statusPort":70000}`),
		"concurrency -1: write 0":               source(t, nil, `PROXY_CONFIG={"concurrency":-1}`),
		"POD_PORTS: write a text":               source(t, nil, `ISTIO_METAJSON_X={"POD_PORTS":[{"containerPort":80}]}`),
		"ISTIO_META_POD_PORTS: ":                source(t, nil, "ISTIO_META_POD_PORTS=x"),
		`WORKLOAD_IDENTITY_SOCKET_FILE="../x"`:  source(t, nil, "WORKLOAD_IDENTITY_SOCKET_FILE=../x"),
		"ENVOY_STATUS_PORT=\"x\": write a port": source(t, nil, "ENVOY_STATUS_PORT=x"),
		"ENVOY_SECURE_METRICS_PORT=15090: ENVOY_PROMETHEUS_PORT has this port": source(t, nil, "ENVOY_SECURE_METRICS_PORT=15090"),
		"ENVOY_SECURE_MERGED_METRICS_PORT=15020: statusPort has this port":     source(t, nil, "ENVOY_SECURE_MERGED_METRICS_PORT=15020"),
		"ENVOY_SECURE_MERGED_METRICS_PORT=15091: ENVOY_SECURE_METRICS_PORT has this port": source(t, nil,
			"ENVOY_SECURE_METRICS_PORT=15091", "ENVOY_SECURE_MERGED_METRICS_PORT=15091"),
		"the agent merges no metrics with statusPort 0": source(t, nil, `PROXY_CONFIG={"statusPort":0}`,
			"ENVOY_SECURE_MERGED_METRICS_PORT=15092"),
		"XDS_HEADER_grpc-x: write the name of a header": source(t, nil, "XDS_HEADER_grpc-x=y"),
		"CA_HEADER_: write the name of a header":        source(t, nil, "CA_HEADER_=y"),
		`COMPLIANCE_POLICY="fips": write fips`:          source(t, nil, "COMPLIANCE_POLICY=fips"),
	} {
		if _, err := Read(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestLinkToNothing checks that a symbolic link to a missing file is an error, unlike a missing file.
func TestLinkToNothing(t *testing.T) {
	for _, name := range []string{"etc/istio/config/mesh", "etc/istio/pod/labels"} {
		s := source(t, nil)
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(s.Dir, name)), 0o755))
		must.Succeed(t, os.Symlink("nothing", filepath.Join(s.Dir, name)))
		if _, err := Read(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnused checks that variables of Istio's agent without effect are findings, unless they have their defaults or
// nothing depends on them, and that registries without TLS are listed.
func TestUnused(t *testing.T) {
	c, err := Read(source(t, nil, "PEER_METADATA_DISCOVERY=true", "PROXY_CONFIG_XDS_AGENT=true", "WASM_MODULE_EXPIRY=1h",
		"WASM_PURGE_INTERVAL=60m", "CREDENTIAL_FETCHER_TYPE=", "WASM_INSECURE_REGISTRIES=*,r:5000"))
	must.Succeed(t, err)
	want := []string{
		"PEER_METADATA_DISCOVERY: ambient mode is not supported",
		"WASM_MODULE_EXPIRY: the cache of modules is bounded by their number",
		"WASM_INSECURE_REGISTRIES: * is not supported: list each HOST:PORT",
	}
	if !slices.Equal(c.Findings, want) || !slices.Contains(c.WasmInsecure, "r:5000") {
		t.Errorf("findings %q, registries %q", c.Findings, c.WasmInsecure)
	}
}

// TestSettings checks variables that are passed on as they are.
func TestSettings(t *testing.T) {
	c, err := Read(source(t, nil, "XDS_HEADER_Tenant=a=b", "CA_HEADER_X_Y=z", "ISTIO_META_ENABLE_DNS_SERVER=true", "DNS_FORWARD_TIMEOUT=2s",
		"REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION=true", "ISTIO_ENABLE_HTTP2_PROBING=false", "ISTIO_ENVOY_ENABLE_CORE_DUMP=true",
		"COMPLIANCE_POLICY=pqc"))
	must.Succeed(t, err)
	if !maps.Equal(c.Security.DiscoveryHeaders, map[string]string{"tenant": "a=b"}) ||
		!maps.Equal(c.Security.CAHeaders, map[string]string{"x_y": "z"}) {
		t.Errorf("headers %v and %v", c.Security.DiscoveryHeaders, c.Security.CAHeaders)
	}
	if !c.DNSCapture || c.DNSTimeout != 2*time.Second || !c.ProbeLocalhost || !c.ProbeHTTP1 || !c.Envoy.CoreDump ||
		c.Compliance != compliance.PQC || len(c.Findings) > 0 {
		t.Errorf("%+v", c)
	}
	c, err = Read(source(t, nil))
	must.Succeed(t, err)
	if c.DNSCapture || c.DNSTimeout != 5*time.Second || c.ProbeLocalhost || c.ProbeHTTP1 || c.Envoy.CoreDump ||
		c.Compliance != compliance.None {
		t.Errorf("by default: %+v", c)
	}
}

// TestMetrics checks that a gateway does not serve the metrics of an application, whose port its Services may have.
func TestMetrics(t *testing.T) {
	const variable = "ISTIO_PROMETHEUS_ANNOTATIONS"
	for role, want := range map[string]string{"": `{"port":"1"}`, "router": ""} {
		s := source(t, nil, variable+`={"port":"1"}`, "METRICS_LOCALHOST_ACCESS_ONLY=true", "PILOT_AGENT_MERGE_ENVOY_STATS=false",
			"ENVOY_SECURE_METRICS_PORT=15091", "ENVOY_SECURE_MERGED_METRICS_PORT=15092")
		s.Role = role
		c, err := Read(s)
		if err != nil || c.Prometheus != want || !c.LocalMetrics || c.MergeEnvoy || len(c.Findings) != 0 ||
			c.SecureMetricsPort != 15091 || c.SecureMergedPort != 15092 {
			t.Errorf("%q: %v, %+v", role, err, c)
		}
	}
	if c, err := Read(source(t, nil)); err != nil || c.LocalMetrics || !c.MergeEnvoy || c.SecureMetricsPort != 0 || c.SecureMergedPort != 0 {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestFindings checks that an unknown field is a finding, and that the other fields are used.
func TestFindings(t *testing.T) {
	c, err := Read(source(t, nil, `PROXY_CONFIG={"statusPort":2,"colour":"red"}`))
	if err != nil || len(c.Findings) != 1 || !strings.Contains(c.Findings[0], "colour") || c.Proxy.GetStatusPort() != 2 {
		t.Errorf("%v, %v", c, err)
	}
}
