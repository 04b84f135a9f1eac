package spire

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// ttl is the lifetime of certificates in seconds. SPIRE renews them after half of it.
const ttl = 40

// domain is a trust domain with a server and an agent of SPIRE.
type domain struct {
	t              *testing.T
	name, dir      string
	port, endpoint string // of the server, and of its bundle endpoint
	server, agent  *program
	entries        map[string]bool // by account
}

// program is a running program of SPIRE.
type program struct {
	cmd   *exec.Cmd
	ended <-chan struct{}
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

const serverConfig = `server {
  bind_address = "127.0.0.1"
  bind_port = "%[1]s"
  socket_path = "%[2]s/server.sock"
  trust_domain = "%[3]s"
  data_dir = "%[2]s"
  log_level = "WARN"
  federation {
    bundle_endpoint {
      address = "127.0.0.1"
      port = %[4]s
      profile "https_spiffe" {}
    }
    federates_with "%[5]s" {
      bundle_endpoint_url = "https://127.0.0.1:%[6]s"
      bundle_endpoint_profile "https_spiffe" { endpoint_spiffe_id = "spiffe://%[5]s/spire/server" }
    }
  }
}
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3", connection_string = "%[2]s/server.sqlite3" } }
  KeyManager "disk" { plugin_data { keys_path = "%[2]s/server-keys.json" } }
  NodeAttestor "join_token" { plugin_data {} }
}
`

// agentConfig has the roots of all federated trust domains where Envoy asks for ROOTCA.
const agentConfig = `agent {
  server_address = "127.0.0.1"
  server_port = "%[1]s"
  socket_path = "%[2]s/agent.sock"
  trust_domain = "%[3]s"
  trust_bundle_path = "%[2]s/bundle.pem"
  data_dir = "%[2]s/agent"
  join_token = "%[4]s"
  log_level = "WARN"
  sds {
    default_bundle_name = "null"
    default_all_bundles_name = "ROOTCA"
  }
  experimental { sync_interval = "1s" }
}
plugins {
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "disk" { plugin_data { directory = "%[2]s/agent" } }
  WorkloadAttestor "unix" { plugin_data { discover_workload_path = true, workload_size_limit = -1 } }
}
`

// federated starts two trust domains that have the bundles of each other.
func federated(t *testing.T, first, second string) (a, b *domain) {
	t.Helper()
	a, b = newDomain(t, first), newDomain(t, second)
	for d, other := range map[*domain]*domain{a: b, b: a} {
		suite.Write(t, filepath.Join(d.dir, "server.conf"),
			fmt.Sprintf(serverConfig, d.port, d.dir, d.name, d.endpoint, other.name, other.endpoint))
		d.startServer()
		suite.Write(t, filepath.Join(d.dir, "bundle.pem"), d.ask("bundle show"))
		token := strings.TrimSpace(strings.TrimPrefix(d.ask("token generate", "-spiffeID", d.id("node")), "Token:"))
		suite.Write(t, filepath.Join(d.dir, "agent.conf"), fmt.Sprintf(agentConfig, d.port, d.dir, d.name, token))
		d.startAgent()
	}
	for d, other := range map[*domain]*domain{a: b, b: a} {
		path := filepath.Join(d.dir, "other.json")
		suite.Write(t, path, other.ask("bundle show", "-format", "spiffe"))
		d.ask("bundle set", "-format", "spiffe", "-id", "spiffe://"+other.name, "-path", path)
	}
	return a, b
}

func newDomain(t *testing.T, name string) *domain {
	t.Helper()
	d := &domain{t: t, name: name, entries: map[string]bool{}}
	var err error
	d.dir, err = os.MkdirTemp("", "s") // the path of a socket is short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(d.dir) })
	suite.LogTails(t, d.dir)
	must.Succeed(t, os.Mkdir(filepath.Join(d.dir, "agent"), 0o700))
	for _, port := range []*string{&d.port, &d.endpoint} {
		*port, err = freeport.Pick(t.Context(), "127.0.0.1")
		must.Succeed(t, err)
	}
	return d
}

func (d *domain) startServer() {
	d.t.Helper()
	d.server = d.start("server", exec.CommandContext(context.Background(), tool("spire-server"), "run", "-config", d.dir+"/server.conf"))
}

// startAgent starts an agent. It looks callers up in /proc, so that it needs the /proc of the processes of this test.
func (d *domain) startAgent() {
	d.t.Helper()
	cmd := exec.CommandContext(context.Background(), "sh", "-c", `mount -t proc none /proc && exec "$@"`, "sh",
		tool("spire-agent"), "run", "-config", d.dir+"/agent.conf")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	d.agent = d.start("agent", cmd)
}

// start starts a program, and waits until it is healthy. It ends with the test.
func (d *domain) start(name string, cmd *exec.Cmd) *program {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must.Succeed(d.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p := &program{cmd: cmd}
	p.ended, err = child.Start(cmd)
	must.Succeed(d.t, err)
	d.t.Cleanup(p.kill)
	suite.Eventually(d.t, "SPIRE's "+name+" of "+d.name+" is healthy", func() bool {
		select {
		case <-p.ended:
			d.t.Fatalf("SPIRE's %s of %s has ended: %s", name, d.name, cmd.ProcessState)
		default:
		}
		return exec.CommandContext(d.t.Context(), tool("spire-"+name), "healthcheck", "-socketPath", d.dir+"/"+name+".sock").Run() == nil
	})
	return p
}

// ask runs a command of the server, and returns what it prints.
func (d *domain) ask(command string, args ...string) string {
	d.t.Helper()
	args = append(append(strings.Fields(command), "-socketPath", d.dir+"/server.sock"), args...)
	out, err := exec.CommandContext(d.t.Context(), tool("spire-server"), args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("spire-server %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// register writes the entry of an account, whose workloads trust the other trust domains.
func (d *domain) register(account string, others ...string) {
	d.t.Helper()
	command := "entry create"
	if d.entries[account] {
		command = "entry update"
	}
	args := []string{"-entryID", account, "-parentID", d.id("node"), "-spiffeID", d.account(account),
		"-selector", "unix:path:" + envoyOf(os.Getenv(dirVar), account), "-x509SVIDTTL", fmt.Sprint(ttl)}
	for _, other := range others {
		args = append(args, "-federatesWith", "spiffe://"+other)
	}
	d.ask(command, args...)
	d.entries[account] = true
}

func (d *domain) id(path string) string { return "spiffe://" + d.name + "/" + path }

// account returns the identity of a service account.
func (d *domain) account(name string) string { return d.id("ns/b/sa/" + name) }

// roots returns the roots of the trust domain.
func (d *domain) roots() []*x509.Certificate {
	d.t.Helper()
	list, err := pki.ParseCertificates([]byte(d.ask("bundle show")))
	must.Succeed(d.t, err)
	return list
}

// authority runs a command about the X.509 authorities of the server, and returns the ID that it prints.
func (d *domain) authority(command string, args ...string) string {
	d.t.Helper()
	said := d.ask("localauthority x509 "+command, args...)
	_, id, ok := strings.Cut(said, "Authority ID: ")
	if !ok {
		d.t.Fatalf("%s: %s", command, said)
	}
	return strings.Fields(id)[0]
}

func tool(name string) string { return filepath.Join(os.Getenv(dirVar), name) }

// provides puts the socket of the agent into the folder of a pod, where injection mounts it.
func (d *domain) provides(folder, socket string) {
	d.t.Helper()
	must.Succeed(d.t, os.MkdirAll(folder, 0o755))
	must.Succeed(d.t, os.Symlink(filepath.Join(d.dir, "agent.sock"), filepath.Join(folder, socket)))
}
