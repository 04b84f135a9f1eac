package discovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// The flags that charts, scripts and istiod's own documentation use, with istiod's defaults.
func TestFlags(t *testing.T) {
	e := env.Env{}
	c := Command(&e, nil)
	for name, want := range map[string]string{
		"grpcAddr": ":15010", "secureGRPCAddr": ":15012", "httpAddr": ":8080", "httpsAddr": ":15017", "monitoringAddr": ":15014", "configDir": "",
		"registries": "Kubernetes", "domain": "cluster.local", "meshConfig": "./etc/istio/config/mesh",
		"networksConfig": "./etc/istio/config/meshNetworks",
		"clusterID":      "Kubernetes", "namespace": "istio-system", "log_output_level": "default:info", "log_as_json": "false",
		"shutdownDuration": "10s", "drainDuration": "0s",
		"keepaliveInterval": "30s", "keepaliveTimeout": "10s", "keepaliveMaxServerConnectionAge": "0s", "profile": "true", "kubeconfig": "",
		"clusterRegistriesNamespace": "istio-system", "clusterAliases": "[]", "caCertFile": "", "tlsCertFile": "", "tlsKeyFile": "",
		"tls-min-version":  "1.2",
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
	e := env.New([]string{
		"POD_NAMESPACE=mesh", "CLUSTER_ID=c1", "POD_NAME=istiod-0", "REVISION=canary", "PILOT_DEBOUNCE_AFTER=250ms", "PILOT_DEBOUNCE_MAX=soon",
		"PILOT_ENABLE_XDS_CACHE=false", "PILOT_PUSH_THROTTLE=200", "PILOT_PORT=tcp://10.0.0.1:80", "PILOT_SERVICE_HOST=10.0.0.1", "HOME=/",
		"XDS_AUTH=false", "ISTIO_DELTA_XDS=true", "PILOT_MAX_REQUESTS_PER_SECOND=0", "PATH=/bin",
	})
	Command(&e, nil)
	c := Command(&e, nil) // several commands read a variable, and there is one warning
	for name, want := range map[string]string{
		"namespace": "mesh", "clusterID": "c1", "podName": "istiod-0", "revision": "canary", "debounceAfter": "250ms",
		"debounceMax": "10s",
	} {
		if got := c.Flags().Lookup(name).DefValue; got != want {
			t.Errorf("--%s: %s, want %s", name, got, want)
		}
	}
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], `PILOT_DEBOUNCE_MAX="soon"`) {
		t.Errorf("warnings: %q", e.Warnings)
	}
	foreign := e.Foreign()
	if len(foreign) != 2 || foreign[0].Name != "PILOT_PUSH_THROTTLE" || foreign[0].Effect != settings.Harmless ||
		foreign[1].Name != "XDS_AUTH" || foreign[1].Effect == settings.Harmless {
		t.Errorf("without effect: %+v", foreign)
	}
	if !strings.Contains(c.Long, "PILOT_ENABLE_VHDS") {
		t.Errorf("the help says nothing of the environment: %s", c.Long)
	}
}

// A variable of istiod either has an effect here and a description, or a reason why it has none.
func TestVariablesOfIstiod(t *testing.T) {
	e := env.Env{}
	Command(&e, nil)
	described := map[string]bool{}
	for _, v := range env.All() {
		described[v.Name] = true
	}
	for _, s := range settings.Environment() {
		if strings.HasPrefix(s.Name, "OTEL_") || strings.HasSuffix(s.Name, "_proxy") { // not defaults of flags
			continue
		}
		if read := slices.Contains(e.Read, s.Name); read != described[s.Name] || read != (s.Effect == settings.Works) {
			t.Errorf("%s: read %v, described %v, and the table says %c %s", s.Name, read, described[s.Name], s.Effect, s.Why)
		}
	}
}

// TestVariablesThatRestrict gives a value that cannot be read to each variable whose default may open more than the
// value means. A server does not start, and says the name, the value and what may be written.
func TestVariablesThatRestrict(t *testing.T) {
	for name, allowed := range map[string]string{
		"ENABLE_CA_SERVER": "true or false", "ENABLE_DEBUG_ON_HTTP": "true or false", "PILOT_ENABLE_GATEWAY_API": "true or false",
		"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "true or false", "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": "true or false",
		"PILOT_SCOPE_GATEWAY_TO_NAMESPACE": "true or false",
		"DEFAULT_WORKLOAD_CERT_TTL":        "a duration such as 12h", "MAX_WORKLOAD_CERT_TTL": "a duration such as 12h",
		"CITADEL_SELF_SIGNED_CA_CERT_TTL": "a duration such as 12h", "RESOLVE_HOSTNAME_GATEWAYS": "true or false",
		"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": "a duration such as 12h",
		"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX":              "a range of addresses such as 240.240.0.0/16, of at most 30 bits",
		"PILOT_IP_AUTOALLOCATE_IPV6_PREFIX":              "a range of addresses such as 2001:2::/48, of at most 96 bits",
		"ENABLE_MCS_SERVICE_DISCOVERY":                   "true or false", "ENABLE_MCS_CLUSTER_LOCAL": "true or false",
		"MCS_API_GROUP": "multicluster.x-k8s.io", "MCS_API_VERSION": "v1alpha1 or v1beta1",
	} {
		e := env.New([]string{name + "=no"})
		c := Command(&e, nil)
		err := c.RunE(c, nil)
		if want := name + `="no" is not understood: write ` + allowed; err == nil || err.Error() != want || len(e.Warnings) > 0 {
			t.Errorf("%v, warnings %q; want %s", err, e.Warnings, want)
		}
	}
}

// TestSwitches checks that a switch is on by each spelling of true that Go knows, and that any other text is said to
// have no effect.
func TestSwitches(t *testing.T) {
	for _, name := range []string{"ISTIO_MULTIROOT_MESH", "JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "PILOT_HTTP10",
		"PILOT_SIDECAR_USE_REMOTE_ADDRESS", "PILOT_ENABLE_ALPHA_GATEWAY_API"} {
		for text, want := range map[string]int{"True": 0, "1": 0, "yes": 1} {
			e := env.New([]string{name + "=" + text})
			Command(&e, nil)
			if !slices.Contains(e.Read, name) || len(e.Warnings) != want {
				t.Errorf("%s=%s: read %v, warnings %q", name, text, slices.Contains(e.Read, name), e.Warnings)
			}
		}
	}
}

// TestWatchedNamespace refuses what is not the name of one namespace.
func TestWatchedNamespace(t *testing.T) {
	for text, allowed := range map[string]bool{"": true, "team-a": true, "a,b": false, "*": false, "A": false} {
		f := kubeFlags{namespace: text, registries: "Kubernetes"}
		o := ingest.Options{ConfigDir: "mesh"} // no API server is read
		if err := f.options(&o); (err == nil) != allowed || allowed && o.WatchNamespace != text {
			t.Errorf("%q: %v, namespace %q", text, err, o.WatchNamespace)
		}
	}
}

// TestIgnoredResources ignores the kinds that patterns match. A pattern of kinds to read must match one, because a
// typing mistake there would turn off what restricts.
func TestIgnoredResources(t *testing.T) {
	for _, c := range []struct {
		ignore, include string
		ignored         []*kinds.Kind
		idle, refused   string
	}{
		{"", "", nil, "", ""},
		{" sidecars.networking.istio.io , gatewayclasses.gateway.networking.k8s.io", "", []*kinds.Kind{kinds.Sidecar, kinds.GatewayClass},
			"PILOT_IGNORE_RESOURCES", ""},
		{"*.security.istio.io,nothing.example", "peerauthentications.security.istio.io",
			[]*kinds.Kind{kinds.AuthorizationPolicy, kinds.RequestAuthentication}, "PILOT_IGNORE_RESOURCES PILOT_IGNORE_RESOURCES", ""},
		{"*.security.istio.io", "peerauthentication.security.istio.io", nil, "", "peerauthentication.security.istio.io is no kind"},
		{"", "*.istio.io", nil, "PILOT_INCLUDE_RESOURCES", ""},
	} {
		f := kubeFlags{ignore: c.ignore, include: c.include, registries: "Kubernetes"}
		o := ingest.Options{ConfigDir: "mesh"} // no API server is read
		err := f.options(&o)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		must.Succeed(t, err)
		var idle []string
		for _, v := range f.idle(&o, false) {
			idle = append(idle, v.variable)
		}
		if !slices.Equal(o.Ignored, c.ignored) || strings.Join(idle, " ") != c.idle {
			t.Errorf("%+v: ignored %v, without effect %v", c, o.Ignored, idle)
		}
	}
}

// TestSecretsOfThePodsCluster reads the Secrets of remote clusters from the cluster of the pod only if all that istiod
// asks for is given. A server that is no pod refuses to start then.
func TestSecretsOfThePodsCluster(t *testing.T) {
	for _, c := range []struct {
		kubeconfigs         string
		local, external, in bool
		idle, refused       bool
	}{
		{local: true, external: true, in: true, refused: true},
		{local: true, external: true, idle: true},
		{local: true, in: true, idle: true},
		{local: true, external: true, in: true, kubeconfigs: "clusters", idle: true},
		{external: true, in: true},
	} {
		f := kubeFlags{kubeconfigs: c.kubeconfigs, podSecrets: c.local, registries: "Kubernetes"}
		o := ingest.Options{}
		if c.in {
			o.Client = &rest.Config{}
		}
		if err := f.secretsClient(&o, c.external); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		if list := f.idle(&o, c.external); (len(list) > 0) != c.idle {
			t.Errorf("%+v: without effect %v", c, list)
		}
	}
}

// TestGatewayController refuses names that no GatewayClass can have, and names that have another meaning.
func TestGatewayController(t *testing.T) {
	for name, allowed := range map[string]bool{
		"": true, "istio.io/gateway-controller": true, "example.com/a/b:1": true, "example.com": false, "example.com/": false,
		"Example.com/a": false, "example.com/a b": false, "istio.io/mesh-controller": false, "istio.io/unmanaged-gateway": false,
		"example.com/" + strings.Repeat("a", 253): false,
	} {
		e := env.New([]string{"PILOT_GATEWAY_API_CONTROLLER_NAME=" + name})
		if _, err := Judge(&e, nil); (err == nil) != allowed {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNames refuses names that objects cannot have, and says which variables have no effect without an API server.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		set           string
		refused, idle bool
	}{
		{"PILOT_CA_CERT_CONFIGMAP=other", false, false},
		{"PILOT_CA_CERT_CONFIGMAP=Bad Name", true, false},
		{"PILOT_CA_CERT_CONFIGMAP=istio-ca-crl", true, false},
		{"PILOT_CRL_CONFIGMAP=a/b", true, false},
		{"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME=Istio_", true, false},
		{"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME=a.b/c:NoSchedule", true, true},
		{"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME=a.b/c", false, true},
		{"PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS=true", false, true},
		{"ENABLE_CLUSTER_TRUST_BUNDLE_API=true", false, true},
		{"ENABLE_MCS_AUTO_EXPORT=true", false, true},
	} {
		e := env.New([]string{c.set})
		if _, err := Judge(&e, nil); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.set, err)
		}
		f := &flags{}
		f.register(pflag.NewFlagSet("", pflag.ContinueOnError), &e)
		must.Succeed(t, f.Options(&f.o.Options))
		name, _, _ := strings.Cut(c.set, "=")
		if list := f.idle(); c.idle != (len(list) == 1 && list[0].variable == name) {
			t.Errorf("%s: without effect %v", c.set, list)
		}
	}
	e := env.New(nil)
	if _, err := Judge(&e, []string{"--cniNamespace=Kube_System"}); err == nil {
		t.Error("--cniNamespace may be no name of a namespace")
	}
}

// TestMultiClusterVariables has the settings for the Multi-Cluster Services API: a setting without the one that it
// requires has no effect, which is said.
func TestMultiClusterVariables(t *testing.T) {
	const discovery, hosts, local = "ENABLE_MCS_SERVICE_DISCOVERY", "ENABLE_MCS_HOST", "ENABLE_MCS_CLUSTER_LOCAL"
	for _, c := range []struct {
		set      []string
		want     clusterset.Options
		warnings int
	}{
		{nil, clusterset.Options{}, 0},
		{[]string{discovery}, clusterset.Options{Discovery: true}, 0},
		{[]string{discovery, hosts}, clusterset.Options{Discovery: true, Hosts: true}, 0},
		{[]string{discovery, hosts, local}, clusterset.Options{Discovery: true, Hosts: true, ClusterLocal: true}, 0},
		{[]string{discovery, local}, clusterset.Options{Discovery: true}, 1},
		{[]string{hosts, local}, clusterset.Options{}, 2},
		{[]string{"ENABLE_MCS_AUTO_EXPORT"}, clusterset.Options{AutoExport: true}, 0},
	} {
		e := env.New(lists.Map(c.set, func(name string) string { return name + "=true" }))
		f := &flags{}
		f.register(pflag.NewFlagSet("", pflag.ContinueOnError), &e)
		f.Options(&f.o.Options)
		c.want.Version = "v1alpha1"
		if f.o.MultiCluster != c.want || len(e.Warnings) != c.warnings {
			t.Errorf("%v: %+v, warnings %q", c.set, f.o.MultiCluster, e.Warnings)
		}
	}
}

func TestUnknownFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("httpAddr", "", "")
	flags.Bool("profile", false, "")
	flags.StringP("namespace", "n", "", "")
	got := UnknownFlags(flags, []string{"discovery", "--httpAddr", "--looks-like-a-flag", "--profile", "-n", "-x", "--htpAddr=:1",
		"-nfoo", "-z", "--other", "--other", "--", "--after"})
	if want := []string{"htpAddr", "z", "other"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRangesOfAddresses checks which ranges ServiceEntries may get addresses from.
func TestRangesOfAddresses(t *testing.T) {
	const v4, v6 = "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX"
	for variable, fits := range map[string]bool{
		v4 + "=10.9.0.0/16": true, v4 + "=10.9.0.0/30": true, v4 + "=10.9.0.0/31": false, v4 + "=2001:2::/48": false, v4 + "=10.9.0.0": false,
		v4 + "=": true, v6 + "=fd00::/8": true, v6 + "=fd00::/96": true, v6 + "=fd00::/97": false, v6 + "=10.9.0.0/16": false,
	} {
		e := env.New([]string{variable})
		Command(&e, nil)
		if (e.Refusal() == nil) != fits {
			t.Errorf("%s: %v", variable, e.Refusal())
		}
	}
}
