package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

const (
	startTimeout = 3 * time.Minute
	// clients is how many requests are in flight.
	clients   = 8
	splitFile = "reviews-split.yaml"
)

// show is a running demo.
type show struct {
	o     options
	stage *stage
	page  page
	mesh  string
	pilot *controlplane.Process
	world *world.World
}

// tour runs the demo from start to end. It removes its files unless it failed.
func tour(ctx context.Context, o options, s *stage) (err error) {
	began := time.Now()
	work, err := os.MkdirTemp("", "istiod-lite-demo-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	d := &show{o: o, stage: s, page: newPage(os.Stdout), mesh: filepath.Join(work, "mesh")}
	defer func() {
		d.stop()
		switch {
		case err == nil || ctx.Err() != nil:
			os.RemoveAll(work)
			d.page.took(time.Since(began), "everything stopped, nothing left behind; in all")
		default:
			err = fmt.Errorf("%w\nlogs and configuration are in %s", err, work)
		}
	}()
	if err := d.start(ctx, work); err != nil {
		return err
	}
	if err := d.count(ctx, "before"); err != nil {
		return err
	}
	if o.stay {
		return d.stay(ctx)
	}
	if err := d.change(ctx); err != nil {
		return err
	}
	return d.count(ctx, "after")
}

// start starts the control plane and the pods.
func (d *show) start(ctx context.Context, work string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.Mkdir(d.mesh, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := samples.Copy(d.o.sample, d.mesh); err != nil {
		return err
	}
	if err := d.stage.adapt(d.mesh); err != nil {
		return err
	}
	dir, err := world.Read(d.mesh)
	if err != nil {
		return err
	}
	d.stage.cast(&dir)
	d.page.title("istiod-lite: the mesh %s from a directory of YAML", d.o.sample)
	d.page.line("%s", d.stage.about)
	d.page.gap()

	began := time.Now()
	d.pilot, err = controlplane.Start(ctx, controlplane.Options{
		Binary: d.o.pilot, ConfigDir: d.mesh, Host: d.stage.host, WorkDir: work, StateDir: filepath.Join(work, "state"),
	})
	if err != nil {
		return err
	}
	d.page.took(time.Since(began), "control plane is ready, with a CA of its own")

	began = time.Now()
	agent, port, err := d.agent(work)
	if err != nil {
		return err
	}
	d.world, err = world.Start(world.Options{
		Directory: dir, Location: func(p world.Pod) (world.Location, error) { return d.stage.location(p, port) },
		Envoy: d.o.envoy, Agent: agent, Delta: true, Mark: d.stage.mark, Admin: d.stage.admin, WorkDir: work,
	})
	if err != nil {
		return err
	}
	if err := d.world.Ready(ctx); err != nil {
		return err
	}
	envoys := 0
	for _, p := range dir.Pods {
		if p.Proxied {
			envoys++
		}
	}
	d.page.took(time.Since(began), "%s and %d servers are up and configured", plural(envoys, "real Envoy"), len(dir.Pods)-1)
	if !d.stage.strict {
		return nil
	}
	return d.secured(ctx)
}

// agent returns how agents run, and the port of the control plane that they call.
func (d *show) agent(work string) (*proxy.Agent, uint16, error) {
	state := filepath.Join(work, "state")
	roots, err := os.ReadFile(filepath.Join(state, "ca", "ca", "root-cert.pem"))
	if err != nil {
		return nil, 0, fmt.Errorf("roots of the CA: %w", err)
	}
	port, err := proxy.Port(d.pilot.SecureGRPC)
	return &proxy.Agent{Binary: d.o.agent, Discovery: d.pilot.SecureGRPC, Roots: roots, Token: proxy.Tokens(d.o.pilot, state),
		Ports: d.stage.ports}, port, err
}

// secured shows that pods have certificates, and refuse calls without mutual TLS.
func (d *show) secured(ctx context.Context) error {
	pod := d.world.Pod("details-v1")
	var id []byte
	for {
		certs, err := pod.Proxy.Get(ctx, "/certs")
		if err != nil {
			return err
		}
		if id = regexp.MustCompile(`spiffe://[^"]+`).Find(certs); id != nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Envoy of %s has no certificate: %s", pod.Node.Name, certs)
		case <-time.After(10 * time.Millisecond):
		}
	}
	address := net.JoinHostPort(pod.Node.Addr.String(), strconv.Itoa(pod.HTTP[0]))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if resp, err := transport.RoundTrip(req); err == nil {
		resp.Body.Close()
		return fmt.Errorf("%s answers a call without TLS: %s", pod.Node.Name, resp.Status)
	}
	d.page.line("%s is %s, and takes no call without mutual TLS", pod.Node.Name, id)
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (d *show) stop() {
	if d.world != nil {
		d.world.Stop()
	}
	if d.pilot != nil {
		d.pilot.Stop()
	}
}

// count sends requests and prints how often each pod answered.
func (d *show) count(ctx context.Context, when string) error {
	began := time.Now()
	var sent atomic.Int64
	seen, err := d.send(ctx, func() bool { return sent.Add(1) <= int64(d.o.requests) })
	if err != nil {
		return err
	}
	d.page.took(time.Since(began), "%d requests through the gateway %s, none failed", d.o.requests, when)
	d.page.table(seen)
	return nil
}

// change edits the split while requests are in flight. It sends a tenth of the usual number before and after the edit,
// and as many as possible during it.
func (d *show) change(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tenth := int64(d.o.requests/10 + 1)
	var sent, last atomic.Int64
	last.Store(math.MaxInt64)
	flowing, shifted := make(chan struct{}), make(chan error, 1)
	go func() {
		select {
		case <-flowing:
		case <-ctx.Done():
		}
		shifted <- d.shift(ctx)
		last.Store(sent.Load() + tenth)
	}()
	_, err := d.send(ctx, func() bool {
		n := sent.Add(1)
		if n == tenth {
			close(flowing)
		}
		return n <= last.Load()
	})
	cancel() // if requests fail before the change, or instead of it
	if err := errors.Join(err, <-shifted); err != nil {
		return err
	}
	d.page.line("%d requests were sent meanwhile, none failed", last.Load())
	return nil
}

// send sends requests with all clients as long as next returns true, and counts the answers.
func (d *show) send(ctx context.Context, next func() bool) (census, error) {
	seen := census{}
	var mu sync.Mutex
	var sending sync.WaitGroup
	var failures []error
	answers := 0
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	for range clients {
		sending.Go(func() {
			for ctx.Err() == nil && next() {
				a, err := d.ask(ctx, transport)
				mu.Lock()
				answers++
				if err != nil {
					failures = append(failures, err)
				} else {
					seen.add(a)
				}
				mu.Unlock()
			}
		})
	}
	sending.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(failures) > 0 {
		return nil, fmt.Errorf("%d of %d requests failed, the first: %w", len(failures), answers, failures[0])
	}
	return seen, nil
}

func (d *show) ask(ctx context.Context, transport http.RoundTripper) (echo.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.stage.gateway+"/", nil)
	if err != nil {
		return echo.Answer{}, err
	}
	req.Host = d.stage.authority
	resp, err := transport.RoundTrip(req) //nolint:bodyclose // Decode closes it.
	if err != nil {
		return echo.Answer{}, err
	}
	return echo.Decode(resp)
}

// shift edits the split and waits until the Envoys that apply it have accepted it.
func (d *show) shift(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	router := d.world.Pod("productpage-v1")
	if router.Proxy == nil {
		router = d.world.Pod("ingress")
	}
	const reloads = `rds\..*config_reload$`
	sum := func() (n int, err error) {
		stats, err := router.Proxy.Stats(ctx, reloads)
		for _, v := range stats {
			n += v
		}
		return n, err
	}
	before, err := sum()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := rewrite(d.mesh, splitFile, strings.NewReplacer("weight: 90", "weight: 50", "weight: 10", "weight: 50")); err != nil {
		return err
	}
	d.page.line("%s edited while requests are in flight: 90/10 becomes 50/50", splitFile)
	for {
		now, err := sum()
		if err != nil {
			return err
		}
		if now > before {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Envoy of %s has not taken the new split: %w", router.Node.Name, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	d.page.took(time.Since(began), "from saving the file to new routes in %s's Envoy", router.Node.Name)
	return d.world.Healthy(ctx)
}

// stay keeps the mesh up until the context ends.
func (d *show) stay(ctx context.Context) error {
	gateway, secure, debug := d.stage.gateway, d.stage.secure, d.pilot.Monitoring
	var relays sync.WaitGroup
	defer relays.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.stage.gatewayRelay != nil {
		relay := func(l net.Listener, to string) string {
			dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) }
			relays.Go(func() { _ = pods.Relay(ctx, l, dial) })
			return l.Addr().String()
		}
		gateway, debug = relay(d.stage.gatewayRelay, gateway), relay(d.stage.debugRelay, debug)
		if secure != "" {
			secure = relay(d.stage.secureRelay, secure)
		} else {
			d.stage.secureRelay.Close()
		}
	}
	d.page.title("It stays up until Ctrl-C. Try from another shell:")
	if d.o.sample == samples.GatewayAPI {
		_, port, err := net.SplitHostPort(secure)
		if err != nil {
			return err
		}
		d.page.line("curl -H 'Host: bookinfo.example.com' http://%s/", gateway)
		d.page.line("curl -H 'Host: reviews.example.com' -H 'end-user: jason' http://%s/", gateway)
		d.page.line("curl --cacert %s --connect-to ::127.0.0.1:%s https://bookinfo.example.com/vault",
			filepath.Join(d.mesh, samples.RootsFile), port)
	} else {
		d.page.line("curl http://%s/", gateway)
		d.page.line("curl -H 'Host: reviews.bookinfo.svc.cluster.local' http://%s/", gateway)
	}
	d.page.line("bin/pilot-discovery check --address %s", debug)
	d.page.line("bin/pilot-discovery proxy-status --address %s", debug)
	d.page.line("curl http://%s/debug/findings", debug)
	d.page.line("a browser: http://%s/ui", debug)
	d.page.line("edit %s: what the control plane makes of it shows up here", filepath.Join(d.mesh, splitFile))
	d.page.gap()
	relays.Go(func() {
		_ = d.pilot.Follow(ctx, func(line string) {
			if strings.Contains(line, "\tconfiguration applied\t") || strings.Contains(line, "finding") {
				d.page.line("%s", line)
			}
		})
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.pilot.Ended():
		return fmt.Errorf("the control plane ended; its log: %s", d.pilot.LogFile())
	}
}
