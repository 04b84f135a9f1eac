package suite

import (
	"context"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// Environment variables with the paths of the programs.
const (
	EnvoyVar       = "E2E_ENVOY"
	OldestEnvoyVar = "E2E_ENVOY_OLDEST"
	PilotVar       = "E2E_PILOT_DISCOVERY"
	AgentVar       = "E2E_PILOT_AGENT"
)

// Programs copies both Envoys, the control plane and the agent to a folder. It fits Prepare of Options.
func Programs(ctx context.Context, dir string) (environ []string, err error) {
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	oldest, err := set.OldestEnvoy()
	if err != nil {
		return nil, err
	}
	agent, err := set.Agent(ctx)
	return []string{EnvoyVar + "=" + set.Envoy, OldestEnvoyVar + "=" + oldest, PilotVar + "=" + set.Pilot, AgentVar + "=" + agent}, err
}

// MeshOptions say what StartMesh runs.
type MeshOptions struct {
	Network *pods.Network
	Files   map[string]string // of the directory, by name
	Config  string            // the mesh configuration; optional
	Envoy   string            // the variable with the path of Envoy; empty means EnvoyVar
	// StateOfTheWorld makes the proxies use that protocol, and otherwise delta.
	StateOfTheWorld bool
	// CA gives the control plane a certificate authority, and each proxy an agent. The agents trust Roots or, without any,
	// the authority's own root.
	CA    bool
	Roots []*x509.Certificate
	Env   []string // of the control plane, of the form NAME=value
	// AgentEnv is added to the environment of the agents.
	AgentEnv []string
}

// Mesh is a control plane with a configuration directory, and the pods of the directory.
type Mesh struct {
	*world.World
	Dir    string // the directory
	State  string // the folder of the CA; empty without a CA
	Config string // the file of the mesh configuration; empty without one
	Pilot  *controlplane.Process
	Issuer *controlplane.Issuer // certificates for clients without a proxy; nil without a CA
	Roots  []byte               // in PEM; the agents trust them
}

// StartMesh runs a mesh until the test ends. It returns once the proxies are ready.
func StartMesh(ctx context.Context, t *testing.T, o MeshOptions) *Mesh {
	t.Helper()
	work := t.TempDir()
	LogTails(t, work)
	m := &Mesh{Dir: filepath.Join(work, "mesh")}
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range o.Files {
		Write(t, filepath.Join(m.Dir, name), text)
	}
	host := o.Network.Gateway().String()
	options := controlplane.Options{Binary: os.Getenv(PilotVar), ConfigDir: m.Dir, Host: host, WorkDir: work, Env: o.Env}
	if o.Config != "" {
		m.Config = filepath.Join(work, "mesh-config.yaml")
		Write(t, m.Config, o.Config)
		options.Args = []string{"--meshConfig", m.Config}
	}
	if o.CA {
		m.State = filepath.Join(work, "state")
		options.StateDir = m.State
	}
	var err error
	if m.Pilot, err = controlplane.Start(ctx, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Pilot.Stop)
	var agent *proxy.Agent
	if o.CA {
		if m.Issuer, err = m.Pilot.Issuer(o.Roots...); err == nil {
			m.Roots, err = rootsOf(m.State, o.Roots)
		}
		if err != nil {
			t.Fatal(err)
		}
		agent = &proxy.Agent{
			Binary: os.Getenv(AgentVar), Discovery: m.Pilot.SecureGRPC, Roots: m.Roots, Token: proxy.Tokens(os.Getenv(PilotVar), m.State),
			Environ: o.AgentEnv,
		}
	}
	directory, err := world.Read(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	envoy := o.Envoy
	if envoy == "" {
		envoy = EnvoyVar
	}
	m.World, err = StartPods(o.Network, world.Options{
		Directory: directory, Envoy: os.Getenv(envoy), Agent: agent, XDS: m.Pilot.GRPC, Delta: !o.StateOfTheWorld, WorkDir: work,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	if err := m.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return m
}

// rootsOf returns certificates in PEM. Without certificates it returns the root in the state folder.
func rootsOf(state string, list []*x509.Certificate) ([]byte, error) {
	if len(list) == 0 {
		return os.ReadFile(filepath.Join(state, "ca", "ca", "root-cert.pem"))
	}
	var all []byte
	for _, c := range list {
		all = append(all, pki.EncodeCertificate(c.Raw)...)
	}
	return all, nil
}

// StartPods starts pods on a network, without waiting for their proxies. It sets the locations in the options.
func StartPods(network *pods.Network, o world.Options) (*world.World, error) {
	var direct []uint16
	if o.Agent != nil {
		port, err := proxy.Port(o.Agent.Discovery)
		if err != nil {
			return nil, err
		}
		direct = []uint16{port}
	}
	o.Location = func(p world.Pod) (world.Location, error) {
		return network.Add(pods.Spec{Name: p.Node.Name, Addr: p.Node.Addr, Redirect: p.Redirected(), Direct: direct})
	}
	o.Admin = func(world.Pod) (string, error) {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(pods.AdminPort)), nil
	}
	o.Mark = pods.Mark
	return world.Start(o)
}

// Write replaces a whole file, as an editor does.
func Write(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	err := os.WriteFile(next, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}
