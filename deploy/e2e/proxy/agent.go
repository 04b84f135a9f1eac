package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Agent says how to run the agent that starts Envoy, has its certificates, and relays its streams.
type Agent struct {
	Binary string
	// Discovery is the control plane's secure port, and Roots verify it, in PEM.
	Discovery string
	Roots     []byte
	// Token returns a token of a service account.
	Token func(ctx context.Context, namespace, account string) ([]byte, error)
	// Environ is added to the agent's environment.
	Environ []string
	// Ports are the ports of the agent's status, of Envoy's readiness and of Envoy's metrics. Nil means Istio's ports.
	Ports *[3]uint16
}

// Dir returns the folder of the agent's files.
func (p *Proxy) Dir() string { return filepath.Join(p.o.WorkDir, p.o.Node.Name) }

// agentCommand writes the files of an agent, and returns the command that runs it.
func (o Options) agentCommand(dir string) (*exec.Cmd, error) {
	a, n := o.Agent, o.Node
	account := cmp.Or(n.ServiceAccount, "default")
	token, err := a.Token(context.Background(), n.Namespace, account)
	if err != nil {
		return nil, fmt.Errorf("token of %s/%s: %w", n.Namespace, account, err)
	}
	labels := ""
	for name, value := range n.Labels {
		labels += fmt.Sprintf("%s=%q\n", name, value)
	}
	files := map[string]string{
		"var/run/secrets/tokens/istio-token": string(token), "var/run/secrets/istio/root-cert.pem": string(a.Roots),
		"etc/istio/pod/labels": labels,
	}
	env := []string{
		"PATH=" + os.Getenv("PATH"), "POD_NAME=" + n.Name, "POD_NAMESPACE=" + n.Namespace, "SERVICE_ACCOUNT=" + account,
		"INSTANCE_IP=" + n.Addr.String(),
		"CA_ADDR=" + a.Discovery, "ISTIOD_SAN=istiod.istio-system.svc", "TRUST_DOMAIN=cluster.local", "TERMINATION_DRAIN_DURATION_SECONDS=0",
		fmt.Sprint("ISTIO_DELTA_XDS=", o.Delta),
	}
	for key, value := range map[string]string{
		"CLUSTER_ID": cmp.Or(n.Cluster, "Kubernetes"), "WORKLOAD_NAME": n.Workload, "INTERCEPTION_MODE": string(n.Interception),
		"NODE_NAME": n.NodeName,
		"NETWORK":   n.Network, "REQUESTED_NETWORK_VIEW": n.View, "MESH_ID": "cluster.local",
	} {
		if value != "" {
			env = append(env, "ISTIO_META_"+key+"="+value)
		}
	}
	admin, err := netip.ParseAddrPort(o.Admin)
	if err != nil {
		return nil, fmt.Errorf("admin API: %w", err)
	}
	config := map[string]any{
		"discoveryAddress": a.Discovery, "binaryPath": o.Binary, "concurrency": 1, "drainDuration": "2s", "proxyAdminPort": admin.Port(),
		// The tests read all statistics.
		"proxyStatsMatcher": map[string]any{"inclusionRegexps": []string{".*"}},
	}
	if a.Ports != nil {
		config["statusPort"] = a.Ports[0]
		env = append(env, fmt.Sprint("ENVOY_STATUS_PORT=", a.Ports[1]), fmt.Sprint("ENVOY_PROMETHEUS_PORT=", a.Ports[2]))
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	env = append(env, "PROXY_CONFIG="+string(text))
	if o.Mark != 0 {
		files["bootstrap.json"] = fmt.Sprintf(
			`{"clusterManager": {"upstreamBindConfig": {"socketOptions": [{"description": "mark", "level": %d, "name": %d, "intValue": %d}]}}}`,
			unix.SOL_SOCKET, unix.SO_MARK, o.Mark)
		env = append(env, "ISTIO_BOOTSTRAP_OVERRIDE=bootstrap.json")
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, fmt.Errorf("folder of an agent: %w", err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("files of an agent: %w", err)
		}
	}
	cmd := exec.CommandContext(context.Background(), a.Binary, "proxy", string(n.Type), "--proxyLogLevel=warning")
	cmd.Dir, cmd.Env = dir, append(env, a.Environ...)
	return cmd, nil
}

// Port returns the port of HOST:PORT.
func Port(address string) (uint16, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err
}

// Tokens returns a function for Token of Agent. A command of the control plane makes the tokens with the key in its
// state folder.
func Tokens(pilot, state string) func(ctx context.Context, namespace, account string) ([]byte, error) {
	return func(ctx context.Context, namespace, account string) ([]byte, error) {
		text, err := exec.CommandContext(ctx, pilot, "token", namespace, account, "--stateDir", state).Output()
		return []byte(strings.TrimSpace(string(text))), err
	}
}
