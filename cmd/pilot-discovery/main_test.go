package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pilot-discovery": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"address": address,
		},
	})
}

// address FILE KEY waits for an address file and puts the address of that key into the variable KEY.
func address(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: address FILE KEY")
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		var all map[string]string
		if err == nil && json.Unmarshal(text, &all) == nil && all[args[1]] != "" {
			ts.Setenv(args[1], all[args[1]])
			return
		}
	}
	ts.Fatalf("no address of %s in %s", args[1], args[0])
}

// The flags that charts, scripts and istiod's own documentation use, with istiod's defaults.
func TestFlags(t *testing.T) {
	e := env{getenv: func(string) string { return "" }}
	c := discoveryCommand(&e, nil)
	for name, want := range map[string]string{
		"grpcAddr": ":15010", "secureGRPCAddr": ":15012", "httpAddr": ":8080", "httpsAddr": ":15017", "monitoringAddr": ":15014", "configDir": "",
		"registries": "Kubernetes", "domain": "cluster.local", "meshConfig": "./etc/istio/config/mesh", "networksConfig": "./etc/istio/config/meshNetworks",
		"clusterID": "Kubernetes", "namespace": "istio-system", "log_output_level": "default:info", "log_as_json": "false", "shutdownDuration": "10s",
		"keepaliveInterval": "30s", "keepaliveTimeout": "10s", "keepaliveMaxServerConnectionAge": "0s", "profile": "true", "kubeconfig": "",
		"clusterRegistriesNamespace": "istio-system", "clusterAliases": "", "caCertFile": "", "tlsCertFile": "", "tlsKeyFile": "", "tls-min-version": "1.2",
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
	e := env{getenv: func(key string) string {
		return map[string]string{
			"POD_NAMESPACE": "mesh", "CLUSTER_ID": "c1", "POD_NAME": "istiod-0", "REVISION": "canary",
			"PILOT_DEBOUNCE_AFTER": "250ms", "PILOT_DEBOUNCE_MAX": "soon", "PILOT_ENABLE_XDS_CACHE": "false",
		}[key]
	}}
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
	for name, want := range map[string]string{"htpAddr": "httpAddr", "httpaddress": "httpAddr", "colour": ""} {
		if got := nearest(flags, name); got != want {
			t.Errorf("%s: nearest is %q, want %q", name, got, want)
		}
	}
}
