package main

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A progress line is for terminals, appears once the work takes long, and is gone at the end.
func TestProgress(t *testing.T) {
	var w strings.Builder
	p := newProgress(&w, "reading")
	p.show("Pod", 500)
	p.done()
	if w.Len() > 0 {
		t.Errorf("where there is no terminal: %q", w.String())
	}
	p = startProgress(&w, "reading", time.Hour)
	p.show("Pod", 500)
	p.done()
	if w.Len() > 0 {
		t.Errorf("of short work: %q", w.String())
	}
	shown := make(chan string, 1)
	p = startProgress(writerFunc(func(text string) {
		select {
		case shown <- text:
		default:
		}
	}), "reading", 0)
	if got := <-shown; got != "\r\x1b[Kreading" {
		t.Errorf("at first: %q", got)
	}
	p.show("Pod", 500)
	if got := <-shown; got != "\r\x1b[Kreading the cluster: Pod, 500" {
		t.Errorf("then: %q", got)
	}
	p.done()
	if got := <-shown; got != "\r\x1b[K" {
		t.Errorf("at the end: %q", got)
	}
	p.show("Pod", 501)
	if len(shown) > 0 {
		t.Errorf("after the end: %q", <-shown)
	}
}

type writerFunc func(string)

func (f writerFunc) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}

// The flags that charts, scripts and istiod's own documentation use, with istiod's defaults.
func TestFlags(t *testing.T) {
	e := env{getenv: func(string) string { return "" }}
	c := discoveryCommand(&e, nil)
	for name, want := range map[string]string{
		"grpcAddr": ":15010", "secureGRPCAddr": ":15012", "httpAddr": ":8080", "httpsAddr": ":15017", "monitoringAddr": ":15014", "configDir": "",
		"registries": "Kubernetes", "domain": "cluster.local", "meshConfig": "./etc/istio/config/mesh", "networksConfig": "./etc/istio/config/meshNetworks",
		"clusterID": "Kubernetes", "namespace": "istio-system", "log_output_level": "default:info", "log_as_json": "false", "shutdownDuration": "10s", "drainDuration": "0s",
		"keepaliveInterval": "30s", "keepaliveTimeout": "10s", "keepaliveMaxServerConnectionAge": "0s", "profile": "true", "kubeconfig": "",
		"clusterRegistriesNamespace": "istio-system", "clusterAliases": "[]", "caCertFile": "", "tlsCertFile": "", "tlsKeyFile": "", "tls-min-version": "1.2",
		"kubernetesApiQPS": "80", "kubernetesApiBurst": "160", "ctrlz_port": "9876", "debounceAfter": "100ms", "debounceMax": "10s",
	} {
		f := c.Flags().Lookup(name)
		if f == nil || f.DefValue != want {
			t.Errorf("--%s: %+v, want default %q", name, f, want)
		}
	}
	if f := c.Flags().ShorthandLookup("n"); f == nil || f.Name != "namespace" {
		t.Error("-n is not --namespace")
	}
}

func TestEnvironmentGivesDefaults(t *testing.T) {
	e := newEnv([]string{
		"POD_NAMESPACE=mesh", "CLUSTER_ID=c1", "POD_NAME=istiod-0", "REVISION=canary", "PILOT_DEBOUNCE_AFTER=250ms", "PILOT_DEBOUNCE_MAX=soon",
		"PILOT_ENABLE_XDS_CACHE=false", "PILOT_PUSH_THROTTLE=200", "PILOT_PORT=tcp://10.0.0.1:80", "PILOT_SERVICE_HOST=10.0.0.1", "HOME=/",
		"XDS_AUTH=false", "ISTIO_DELTA_XDS=true", "PILOT_MAX_REQUESTS_PER_SECOND=0", "PATH=/bin",
	})
	c := discoveryCommand(&e, nil)
	for name, want := range map[string]string{
		"namespace": "mesh", "clusterID": "c1", "podName": "istiod-0", "revision": "canary", "debounceAfter": "250ms", "debounceMax": "10s", "noMemo": "true",
	} {
		if got := c.Flags().Lookup(name).DefValue; got != want {
			t.Errorf("--%s: %s, want %s", name, got, want)
		}
	}
	if len(e.warnings) != 1 || !strings.Contains(e.warnings[0], `PILOT_DEBOUNCE_MAX="soon"`) {
		t.Errorf("warnings: %q", e.warnings)
	}
	if got := e.foreign(); !slices.Equal(got, []string{"PILOT_PUSH_THROTTLE", "XDS_AUTH"}) {
		t.Errorf("without effect: %q", got)
	}
	if !strings.Contains(c.Long, "PILOT_ENABLE_VHDS") {
		t.Errorf("the help says nothing of the environment: %s", c.Long)
	}
}

// TestVariablesThatRestrict gives a value that cannot be read to each variable whose default may open more than the
// value means. A server does not start, and says the name, the value and what may be written.
func TestVariablesThatRestrict(t *testing.T) {
	for name, allowed := range map[string]string{
		"ENABLE_CA_SERVER": "true or false", "ENABLE_DEBUG_ON_HTTP": "true or false", "PILOT_ENABLE_GATEWAY_API": "true or false",
		"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "true or false", "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": "true or false",
		"DEFAULT_WORKLOAD_CERT_TTL": "a duration such as 12h", "MAX_WORKLOAD_CERT_TTL": "a duration such as 12h",
		"CITADEL_SELF_SIGNED_CA_CERT_TTL": "a duration such as 12h",
	} {
		e := newEnv([]string{name + "=no"})
		c := discoveryCommand(&e, nil)
		err := c.RunE(c, nil)
		if want := name + `="no" is not understood: write ` + allowed; err == nil || err.Error() != want || len(e.warnings) > 0 {
			t.Errorf("%v, warnings %q; want %s", err, e.warnings, want)
		}
	}
}

// TestSwitches checks that a switch is on by each spelling of true that Go knows, and that any other text is said to
// have no effect.
func TestSwitches(t *testing.T) {
	for _, name := range []string{"ISTIO_MULTIROOT_MESH", "JWKS_RESOLVER_INSECURE_SKIP_VERIFY"} {
		for text, want := range map[string]int{"True": 0, "1": 0, "yes": 1} {
			e := newEnv([]string{name + "=" + text})
			discoveryCommand(&e, nil)
			if !slices.Contains(e.read, name) || len(e.warnings) != want {
				t.Errorf("%s=%s: read %v, warnings %q", name, text, slices.Contains(e.read, name), e.warnings)
			}
		}
	}
}

func TestUnknownFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("httpAddr", "", "")
	flags.Bool("profile", false, "")
	flags.StringP("namespace", "n", "", "")
	got := unknownFlags(flags, []string{"discovery", "--httpAddr", "--looks-like-a-flag", "--profile", "-n", "-x", "--htpAddr=:1", "-nfoo", "-z", "--other", "--other", "--", "--after"})
	if want := []string{"htpAddr", "z", "other"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Values that are of their flag's type and yet nonsense are refused, by the flag's name, with the value and with what
// to write.
func TestInvalidFlagValues(t *testing.T) {
	for _, x := range []struct{ flag, value, write string }{
		{"kubernetesApiQPS", "NaN", "a number of requests a second"},
		{"kubernetesApiQPS", "+Inf", "a number of requests a second"},
		{"kubernetesApiQPS", "-1", "a number of requests a second"},
		{"kubernetesApiQPS", "0", "a number of requests a second"},
		{"kubernetesApiBurst", "-1", "a number of requests"},
		{"kubernetesApiBurst", "0", "a number of requests"},
		{"clusterID", "", "the name of the cluster"},
		{"clusterID", "a b", "the name of the cluster"},
		{"domain", "", "cluster.local"},
		{"domain", "a..b", "cluster.local"},
		{"namespace", "", "istio-system"},
		{"namespace", "Istio_System", "istio-system"},
		{"revision", "Canary!", "canary"},
		{"grpcAddr", ":65536", ":15010"},
		{"secureGRPCAddr", "15012", ":15010"},
		{"httpAddr", "127.0.0.1:-1", ":15010"},
		{"httpsAddr", "127.0.0.1", ":15010"},
		{"monitoringAddr", ":http", ":15010"},
		{"keepaliveInterval", "-30s", "10s"},
		{"keepaliveTimeout", "0s", "10s"},
		{"keepaliveMaxServerConnectionAge", "-1s", "10s, or 0"},
		{"shutdownDuration", "-1s", "10s, or 0"},
		{"drainDuration", "-1ns", "10s, or 0"},
		{"debounceAfter", "-1s", "10s, or 0"},
		{"debounceMax", "0s", "10s"},
		{"remoteClusterTimeout", "-1s", "10s"},
		{"maxRecvMessageSize", "-1", "4194304"},
		{"maxStreams", "0", "12000"},
		{"apiClients", "10.0.0.1", "10.0.0.0/8"},
	} {
		var said strings.Builder
		code := run(t.Context(), []string{"discovery", "--configDir", t.TempDir(), "--" + x.flag + "=" + x.value}, nil, io.Discard, &said)
		shown := x.value
		if shown == "" || strings.Contains(shown, " ") {
			shown = strconv.Quote(shown)
		}
		if got := said.String(); code != 1 || !strings.Contains(got, "error: --"+x.flag+"="+shown+": write ") || !strings.Contains(got, x.write) {
			t.Errorf("--%s=%s: %d, %s", x.flag, x.value, code, got)
		}
	}
	var said strings.Builder
	env := []string{"CLUSTER_ID=a b", "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD=-5s"}
	if code := run(t.Context(), []string{"validate", t.TempDir()}, env, io.Discard, &said); code != 1 {
		t.Errorf("a command that works on a directory: %d", code)
	}
	for _, want := range []string{`--clusterID="a b"`, `PILOT_WORKLOAD_ENTRY_GRACE_PERIOD="-5s" is not understood`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %s in %s", want, said.String())
		}
	}
}
