package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

// stage is the environment of the demo: network namespaces, or loopback if there are none.
type stage struct {
	about string
	// host is the address on which the control plane listens.
	host string
	// gateway is the address of the ingress gateway, secure its address for TLS if it has one, and authority the host of
	// requests.
	gateway, secure string
	authority       string
	// mark identifies Envoy's own traffic for the rules of pods.
	mark int
	// location makes the location of a pod whose agent calls that port.
	location func(p world.Pod, port uint16) (world.Location, error)
	admin    func(world.Pod) (string, error)
	// ports are the ports of an agent and its Envoy in a stage with one network. Nil means Istio's ports.
	ports *[3]uint16
	// strict reports whether all pods require mutual TLS.
	strict bool
	// adapt changes the copied sample to suit the stage.
	adapt func(dir string) error
	cast  func(*world.Directory)
	// These listeners lead here from the user's network. They are nil without -stay, and in a stage with one network.
	gatewayRelay, secureRelay, debugRelay net.Listener
}

func namespaces(n *pods.Network, sample string) *stage {
	s := &stage{
		about:     "a pod is a network namespace with an agent and a real Envoy beside its server",
		host:      n.Gateway().String(),
		gateway:   "10.20.0.2:8080",
		authority: "bookinfo.example.com",
		mark:      pods.Mark,
		location: func(p world.Pod, port uint16) (world.Location, error) {
			return n.Add(pods.Spec{Name: p.Node.Name, Addr: p.Node.Addr, Redirect: p.Redirected(), Direct: []uint16{port}})
		},
		admin: func(world.Pod) (string, error) {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(pods.AdminPort)), nil
		},
		cast:  func(*world.Directory) {},
		adapt: func(string) error { return nil },
	}
	switch sample {
	case samples.GatewayAPI:
		s.secure = "10.20.0.2:8443"
	case samples.Bookinfo:
		s.strict = true
		s.adapt = func(dir string) error {
			err := rewrite(dir, "mesh.yaml", strings.NewReplacer("DISABLE", "STRICT",
				"Where no agent brings certificates, mutual TLS is switched off",
				"Agents bring certificates, and calls by mutual TLS alone are served"))
			// Injection labels a pod with a certificate in the same way.
			return errors.Join(err,
				rewrite(dir, "*.yaml", strings.NewReplacer("\n    version: v", "\n    security.istio.io/tlsMode: istio\n    version: v")))
		}
	}
	return s
}

// loopback gives each pod an address in 127.0.0.0/8, and each port a free number.
func loopback(sample string) (*stage, error) {
	ports := []string{"9080", "8080"}
	if sample == samples.GatewayAPI {
		ports = append(ports, "8443", "9000", "9001", "9090", "9443")
	}
	free := map[string]string{} // by the text in the sample
	var changes []string
	for _, port := range ports {
		instead, err := freeport.Pick(context.Background(), "0.0.0.0")
		if err != nil {
			return nil, err
		}
		free[port] = instead
		changes = append(changes, port, instead)
	}
	authority, secure := "reviews.bookinfo.svc.cluster.local", ""
	bind := func(string) error { return nil }
	if sample == samples.GatewayAPI {
		authority, secure, bind = "reviews.example.com", net.JoinHostPort("127.0.0.1", free["8443"]), bindToLoopback
	}
	own := &[3]uint16{}
	for i := range own {
		text, err := freeport.Pick(context.Background(), "0.0.0.0")
		if err != nil {
			return nil, err
		}
		if own[i], err = proxy.Port(net.JoinHostPort("", text)); err != nil {
			return nil, err
		}
	}
	return &stage{
		about:     "an ingress gateway on loopback, with an agent",
		host:      "127.0.0.1",
		gateway:   net.JoinHostPort("127.0.0.1", free["8080"]),
		secure:    secure,
		authority: authority,
		location:  func(world.Pod, uint16) (world.Location, error) { return &machine{}, nil },
		ports:     own,
		admin: func(world.Pod) (string, error) {
			port, err := freeport.Pick(context.Background(), "0.0.0.0")
			return net.JoinHostPort("127.0.0.1", port), err
		},
		adapt: func(dir string) error {
			changes := append(changes, "10.20.", "127.20.",
				"- port: {number: 80, name: http, protocol: HTTP}", "- port: {number: 80, name: http, protocol: HTTP}\n    bind: 127.0.0.1")
			if err := rewrite(dir, "[^c]*.yaml", strings.NewReplacer(changes...)); err != nil { // not certificates.yaml
				return err
			}
			return bind(dir)
		},
		cast: func(d *world.Directory) {
			for i := range d.Pods {
				p := &d.Pods[i]
				p.Proxied = p.Node.Type == "router"
				d.Hosts[p.Node.Workload+"."+p.Node.Namespace] = p.Node.Addr
			}
		},
	}, nil
}

// bindToLoopback makes the Gateway of a copied sample listen only on loopback, which the Gateway API cannot express.
func bindToLoopback(dir string) error {
	const filter = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: loopback, namespace: ingress}
spec:
  configPatches:
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch: {operation: MERGE, value: {address: {socket_address: {address: 127.0.0.1}}}}
`
	if err := os.WriteFile(filepath.Join(dir, "loopback.yaml"), []byte(filter), 0o644); err != nil {
		return fmt.Errorf("edit sample: %w", err)
	}
	return nil
}

// machine is the location of pods without a network namespace.
type machine struct{ net.Dialer }

func (*machine) Start(cmd *exec.Cmd) error { return cmd.Start() }
func (*machine) Listen(addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp4", addr)
}

// rewrite edits the matching files as an editor does: it replaces each file by a new one.
func rewrite(dir, pattern string, r *strings.Replacer) error {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("edit sample: %w", err)
		}
		if err := os.WriteFile(name+"~", []byte(r.Replace(string(content))), 0o644); err != nil {
			return fmt.Errorf("edit sample: %w", err)
		}
		if err := os.Rename(name+"~", name); err != nil {
			return fmt.Errorf("edit sample: %w", err)
		}
	}
	return nil
}
