package clusters

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	//go:embed testdata/networks/one.yaml
	firstNetwork string
	//go:embed testdata/networks/two.yaml
	secondNetwork string
)

// gateway is the Service by which the second network is entered, at that address.
func gateway(address string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: eastwest, namespace: istio-system, labels: {topology.istio.io/network: there}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.30
  selector: {istio: eastwestgateway}
  ports:
  - {name: tls, port: 15443, targetPort: 15443}
status:
  loadBalancer:
    ingress: [{ip: %s}]
`, address)
}

// handedOn returns how many connections to the service a gateway forwarded.
func handedOn(t *testing.T, gateway *world.Running) int {
	t.Helper()
	stats, err := gateway.Proxy.Stats(t.Context(), `^cluster\.outbound_\.80_\._\.echo\.mesh\.svc\.cluster\.local.*upstream_cx_total$`)
	must.Succeed(t, err)
	sum := 0
	for _, n := range stats {
		sum += n
	}
	return sum
}

// TestNetworks: a client calls a service that runs only on another network, with mutual TLS from sidecar to sidecar,
// through the gateway that the Service of that network names.
func TestNetworks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := &mesh{t: t, work: t.TempDir()}
	suite.LogTails(t, m.work)
	began := time.Now()
	start := func(ctx context.Context, to **cluster.Cluster) error {
		c, err := cluster.Start(ctx, cluster.Options{})
		if err == nil {
			t.Cleanup(c.Stop)
			*to = c
		}
		return err
	}
	all, each := errgroup.WithContext(ctx)
	all.Go(func() error {
		if err := start(each, &m.two); err != nil {
			return err
		}
		return m.two.Apply(each, []byte(secondNetwork+gateway("10.10.2.31")+slice("echo", "echo-1", "10.10.2.21", ready)))
	})
	all.Go(func() error {
		if err := start(each, &m.one); err != nil {
			return err
		}
		if err := m.one.InstallCRDs(each, os.Getenv(crdsVar)); err != nil {
			return err
		}
		return m.one.Apply(each, []byte(firstNetwork))
	})
	must.Succeed(t, all.Wait())
	t.Logf("two clusters after %s", time.Since(began).Round(time.Millisecond))
	reader, err := m.two.ServiceAccount(ctx, "istio-system", "reader")
	must.Succeed(t, err)
	apply(t, m.one, remoteSecret(map[string][]byte{"two": encode(t, reader)}))
	kubeconfig := filepath.Join(m.work, "kubeconfig")
	must.Succeed(t, m.one.Admin().WriteFile(kubeconfig))
	m.state = filepath.Join(m.work, "state")
	m.serve(ctx, t, "", kubeconfig)
	roots, err := os.ReadFile(filepath.Join(m.state, "ca", "ca", "root-cert.pem"))
	must.Succeed(t, err)
	m.agent = &proxy.Agent{Binary: os.Getenv(suite.AgentVar), Discovery: m.pilot.SecureGRPC, Roots: roots,
		Token: proxy.Tokens(os.Getenv(pilotVar), m.state)}
	everyone := func(string) bool { return true }
	m.own = m.runIn(ctx, t, "here", firstNetwork, "", true, everyone)
	m.remote = m.runIn(ctx, t, "there", secondNetwork, "two", false, everyone)

	tr := begin(t, echoAddr, "echo", m.own.Pod("client"))
	tr.Answers(t, "echo-1")
	first, second := m.remote.Pod("gateway-1"), m.remote.Pod("gateway-2")
	if handedOn(t, first) == 0 || handedOn(t, second) != 0 {
		t.Errorf("%d connections came by the gateway that the Service names, %d by the other", handedOn(t, first), handedOn(t, second))
	}
	apply(t, m.two, gateway("10.10.2.32"))
	suite.Eventually(t, "connections come by the other gateway", func() bool { return handedOn(t, second) > 0 })
	tr.Answers(t, "echo-1")
	m.healthy(t)
}
