package capture

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// dryRun runs the command with --dry-run and returns the script.
func dryRun(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	cmd := Command(func(name string) string { return env[name] })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(append([]string{"--dry-run"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

// TestScripts compares the scripts for the arguments of injected pods with golden files.
func TestScripts(t *testing.T) {
	injected := []string{"-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020",
		"--log_output_level=default:info", "--log_as_json"}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"redirect": {nil, append(injected, "-m", "REDIRECT")},
		"tproxy":   {nil, append(injected, "-m", "TPROXY", "--native-nftables")},
		"everything": {
			map[string]string{
				"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true", "ISTIO_DUAL_STACK": "true",
				"ISTIO_OUTBOUND_OWNER_GROUPS": "101,102", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "root", "PROXY_UID": "77", "PROXY_GID": "78",
				"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8",
			},
			[]string{
				"-m", "REDIRECT", "-i", "10.0.0.0/8,fd00::/8", "-x", "10.9.0.0/16", "-b", "80,8080", "-q", "9000", "-o", "3306", "-c", "eth1", "-k",
				"net1",
				"--capture-all-dns", "--proxy-mark", "5",
			},
		},
		"none": {nil, []string{"-m", "NONE"}},
		// Istio's script for virtual machines passes its settings as variables. An argument has precedence.
		"machine": {
			map[string]string{
				"ISTIO_INBOUND_INTERCEPTION_MODE": "TPROXY", "ISTIO_INBOUND_TPROXY_MARK": "7", "ISTIO_INBOUND_TPROXY_ROUTE_TABLE": "8",
				"ISTIO_INBOUND_PORTS": "*", "ISTIO_LOCAL_EXCLUDE_PORTS": "22", "ISTIO_SERVICE_CIDR": "10.0.0.0/8",
				"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE": "25", "ENVOY_USER": "root", "ENVOY_PORT": "1", "INBOUND_CAPTURE_PORT": "16006",
				"INBOUND_INTERCEPTION_MODE": "NONE", "INBOUND_TPROXY_MARK": "1", "DROP_INVALID": "true",
			},
			[]string{"-o", "26"},
		},
	} {
		got, err := dryRun(t, c.env, c.args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden := filepath.Join("testdata", name+".nft")
		if *update {
			must.Succeed(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		want, err := os.ReadFile(golden)
		must.Succeed(t, err)
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for want, args := range map[string][]string{
		`--envoy-port: "0" is not a port`:                                  {"-p", "0"},
		`--istio-inbound-ports: "http" is not a port`:                      {"-b", "80,http"},
		`--istio-service-cidr: "1.2.3.4" is not a range such as`:           {"-i", "1.2.3.4"},
		`--istio-inbound-interception-mode: "redirect" is neither`:         {"-m", "redirect"},
		`--proxy-uid: "nobody-knows" is neither a number nor a name`:       {"-u", "nobody-knows"},
		`--proxy-mark: "x" is neither a number nor`:                        {"--proxy-mark", "x"},
		`--istio-inbound-tproxy-mark: "0" is not a number above 0`:         {"-t", "0"},
		`--istio-inbound-tproxy-route-table: "-1" is not a number above 0`: {"-r", "-1"},
		`--istio-exclude-interfaces: "veth+" is not the name`:              {"-c", "eth0,veth+"},
		`--kube-virt-interfaces: "an-interface-of-16"`:                     {"-k", "an-interface-of-16"},
		`--network-namespace: the DNS servers of the pod are unknown`:      {"--network-namespace", "/nowhere", "--redirect-dns"},
		`unknown flag: --unknown`:                                          {"--unknown"},
	} {
		if out, err := dryRun(t, nil, args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	for variable, value := range map[string]string{
		"INVALID_DROP": "maybe", "DROP_INVALID": "maybe", "ISTIO_INBOUND_PORTS": "http", "ENVOY_USER": "nobody-knows",
	} {
		if out, err := dryRun(t, map[string]string{variable: value}); err == nil || out != "" ||
			!strings.Contains(err.Error(), "$"+variable+`: "`+value+`"`) {
			t.Errorf("%s=%s: %v", variable, value, err)
		}
	}
	for _, wrong := range []string{"::1/128", "10.0.0.0/8", "127.0.0.0/7", "127.0.0.1"} {
		if out, err := dryRun(t, map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": wrong}); err == nil || out != "" ||
			!strings.Contains(err.Error(), `$ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "`+wrong+`"`) {
			t.Errorf("range %s: %v", wrong, err)
		}
	}
	// Both mistakes are reported.
	if _, err := dryRun(t, nil, "-p", "0", "-z", "0"); err == nil || !strings.Contains(err.Error(), "envoy-port") ||
		!strings.Contains(err.Error(), "inbound-capture-port") {
		t.Errorf("two mistakes: %v", err)
	}
}
