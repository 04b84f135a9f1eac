package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/http/httpproxy"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/agent/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/agent/ca"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
	"github.com/istiod-lite/istiod-lite/pilot/agent/dns"
	"github.com/istiod-lite/istiod-lite/pilot/agent/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/agent/health"
	"github.com/istiod-lite/istiod-lite/pilot/agent/sds"
	"github.com/istiod-lite/istiod-lite/pilot/agent/secrets"
	"github.com/istiod-lite/istiod-lite/pilot/agent/status"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
	"github.com/istiod-lite/istiod-lite/pilot/agent/wasm"
	"github.com/istiod-lite/istiod-lite/pilot/agent/xdsproxy"
)

// Options configure an Agent.
type Options struct {
	Config *config.Config
	// Environ is the environment of Envoy, in the form of os.Environ.
	Environ []string
	// LogJSON makes Envoy log in JSON. OutlierLog is the file of its outlier detection events.
	LogJSON        bool
	OutlierLog     string
	Stdout, Stderr io.Writer // of Envoy
	// Debug is the HOST:PORT at which the agent serves debug pages of the control plane. It serves none if it is empty.
	Debug string
	// Kill ends Envoy at once when it is closed. It may be nil.
	Kill <-chan struct{}
	// Now is the clock for the expiry of certificates. The default is time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// component is a part of the agent that runs until Envoy has ended.
type component struct {
	name string
	run  func(context.Context) error
}

// Agent runs one Envoy and the components that serve it.
type Agent struct {
	o          Options
	c          *config.Config
	registry   *prometheus.Registry
	components []component

	secrets *secrets.Manager // nil if another server provides the certificates
	dns     *dns.Server      // nil if names are not captured
	proxy   *xdsproxy.Proxy
	status  *status.Server // nil without a status port
	envoy   *envoy.Process // nil without an Envoy

	quit     chan struct{} // closed by Quit
	quitOnce sync.Once
	lock     *os.File // lock on the directory of the sockets
}

// New opens the sockets and writes the bootstrap. It starts no goroutine. The error names the setting that is wrong
// and how to correct it.
func New(o Options) (*Agent, error) {
	a := &Agent{o: o, c: o.Config, registry: prometheus.NewRegistry(), quit: make(chan struct{})}
	a.o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	// The prefix keeps the names apart from an application's metrics, which are served on the same page.
	prometheus.WrapRegistererWithPrefix("istio_agent_", a.registry).MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, f := range append(a.c.Findings, bootstrap.Ineffective(a.c.Proxy)...) {
		a.o.Log.Warn("a setting has no effect", "finding", f)
	}
	if lack, fix := a.c.Compliance.Warning(); lack != "" {
		a.o.Log.Warn("the policy of TLS is narrower here", "policy", a.c.Compliance, "reason", lack, "fix", fix)
	}
	for _, step := range []func() error{a.lockFolder, a.makeDNS, a.makeProxy, a.prepareEnvoy, a.makeStatus, a.makeHealth} {
		if err := step(); err != nil {
			_ = a.lock.Close()
			return nil, err
		}
	}
	return a, nil
}

// lockFolder locks the directory of the sockets, so that no second agent takes over the sockets and the identity of
// this one.
func (a *Agent) lockFolder() error {
	directory := filepath.Dir(a.c.XDSSocket)
	err := os.MkdirAll(directory, 0o755)
	if err == nil {
		a.lock, err = os.OpenFile(filepath.Join(directory, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return fmt.Errorf("failed to open the agent's folder: %w", err)
	}
	if err := syscall.Flock(int(a.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another agent uses the folder %s: use another working directory: %w", directory, err)
	}
	return nil
}

func (a *Agent) add(name string, run func(context.Context) error) {
	a.components = append(a.components, component{name, run})
}

func (a *Agent) log(scope string) *slog.Logger { return a.o.Log.With("scope", scope) }

func (a *Agent) makeDNS() error {
	if !a.c.DNSCapture {
		return nil
	}
	var err error
	a.dns, err = dns.New(dns.Options{
		Addr: a.c.DNSAddr, Namespace: a.c.Namespace, Parallel: a.c.DNSParallel, Timeout: a.c.DNSTimeout,
		Log: a.log("dns"), Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	a.add("dns", a.dns.Run)
	return nil
}

// upstreamOptions returns the options of the connection to a server of the control plane.
func (a *Agent) upstreamOptions(address, name, roots string, more map[string]string) upstream.Options {
	s := a.c.Security
	headers := map[string]string{}
	maps.Copy(headers, more)
	headers["clusterid"] = a.c.Node.GetMetadata().GetFields()["CLUSTER_ID"].GetStringValue()
	o := upstream.Options{
		Address: address, Plaintext: config.Plaintext(address), ServerName: name, Roots: roots, Token: s.Token, Log: a.log("xdsproxy"),
		Compliance: a.c.Compliance, Headers: headers,
	}
	if s.CertificateFolder != "" {
		o.Certificate, o.Key = filepath.Join(s.CertificateFolder, "cert-chain.pem"), filepath.Join(s.CertificateFolder, "key.pem")
	}
	if s.Mounted {
		o.Certificate, o.Key, o.Token = s.Chain, s.Key, ""
	}
	return o
}

// makeProxy makes the servers of certificates and of configuration, and their connections to the control plane.
func (a *Agent) makeProxy() error {
	s := a.c.Security
	external := sds.Serving(a.c.SDSSocket)
	if a.c.ExternalSDS && !external {
		return fmt.Errorf("WORKLOAD_IDENTITY_SOCKET_FILE: no server provides certificates at %s: "+
			"start it before the agent, or unset the variable", a.c.SDSSocket)
	}
	if external && s.Output != "" && a.c.GRPCBootstrap != "" {
		return fmt.Errorf("OUTPUT_CERTS=%s: the certificates are provided by the server at %s, which writes no files for the application: "+
			"unset OUTPUT_CERTS", s.Output, a.c.SDSSocket)
	}
	options := a.upstreamOptions(s.Discovery, s.ServerName, s.DiscoveryRoots, s.DiscoveryHeaders)
	if options.Plaintext {
		options.Token = "" // without TLS the server does not authenticate the agent, and others could read the token
	}
	discovery, err := upstream.New(options)
	if err != nil {
		return err
	}
	a.add("control plane", discovery.Run)
	handlers := map[string]func([]byte) error{}
	if a.dns != nil {
		handlers[dns.NameTableType] = a.dns.SetTable
	}
	if external {
		a.o.Log.Info("another server provides the certificates", "socket", a.c.SDSSocket)
		if s.Output != "" {
			a.o.Log.Warn("a setting has no effect", "finding", "OUTPUT_CERTS: another server provides the certificates")
		}
	} else if err := a.makeSecrets(); err != nil {
		return err
	} else {
		handlers[xdsproxy.ProxyConfigType] = a.secrets.ProxyConfig
	}
	mode := os.FileMode(0o600)
	// Applications may run as any user.
	if a.c.GRPCBootstrap != "" {
		mode = 0o666
	}
	modules, err := wasm.New(wasm.Options{
		Dir: filepath.Join(filepath.Dir(a.c.XDSSocket), "wasm"), Insecure: a.c.WasmInsecure,
		Fetch: safe.FetchOptions{Proxy: httpproxy.FromEnvironment().ProxyFunc()}, Registerer: a.registry, Log: a.log("wasm"),
	})
	if err != nil {
		return err
	}
	a.proxy, err = xdsproxy.New(xdsproxy.Options{
		Path: a.c.XDSSocket, Mode: mode, Upstream: discovery, Handlers: handlers, Extensions: modules.Replace,
		Debug: a.o.Debug, Node: a.c.Node, Registerer: a.registry, Log: a.log("xdsproxy"),
	})
	if err != nil {
		return err
	}
	a.add("configuration", a.proxy.Run)
	return nil
}

func (a *Agent) makeSecrets() error {
	s := a.c.Security
	o := secrets.Options{
		Now: a.o.Now, TTL: s.TTL, Key: secrets.Key{RSA: s.RSA, Curve: s.Curve, PKCS8: s.PKCS8},
		Grace: s.Grace, Jitter: s.Jitter, Output: s.Output, Registerer: a.registry, Log: a.log("cache"),
	}
	if s.Files {
		a.o.Log.Info("the workload's certificate is read from files", "chain", s.Chain)
		o.Files = secrets.Files{Chain: s.Chain, Key: s.Key, Roots: s.Roots}
	} else {
		options := a.upstreamOptions(s.CA, s.CAServerName, s.CARoots, s.CAHeaders)
		if options.Plaintext && options.Token != "" {
			a.o.Log.Warn("the token is sent to the CA without TLS: any host on the network path can read and use it", "server", s.CA)
		}
		authority, err := upstream.New(options)
		if err != nil {
			return err
		}
		a.add("CA", authority.Run)
		if o.Signer, err = ca.New(ca.Options{Upstream: authority, CertSigner: s.Signer, Registerer: a.registry}); err != nil {
			return err
		}
		if a.c.Account != "" {
			o.ID = fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", s.TrustDomain, a.c.Namespace, a.c.Account)
		}
	}
	var err error
	if a.secrets, err = secrets.New(o); err != nil {
		return err
	}
	a.add("certificates", a.secrets.Run)
	server, err := sds.New(sds.Options{Path: a.c.SDSSocket, Manager: a.secrets, Registerer: a.registry, Log: a.log("sds")})
	if err != nil {
		return err
	}
	a.add("secrets", server.Run)
	return nil
}

// prepareEnvoy writes the bootstraps of Envoy and of applications that use xDS themselves.
func (a *Agent) prepareEnvoy() error {
	if a.c.GRPCBootstrap != "" {
		text, err := grpcBootstrap(a.c, a.c.Security.Output)
		if err != nil {
			return err
		}
		if err := writeFile(a.c.GRPCBootstrap, text); err != nil {
			return err
		}
	}
	e := a.c.Envoy
	if e.Disabled {
		return nil
	}
	o := envoy.Options{
		Binary: e.Binary, Config: cmp.Or(e.Custom, e.Config), IPv6: a.c.IPv6, LogLevel: e.LogLevel, ComponentLevel: e.ComponentLevel,
		Concurrency: e.Concurrency, Drain: e.Drain, FlushInterval: e.FlushInterval, FlushMinSizeKB: e.FlushMinSizeKB,
		SkipDeprecatedLogs: e.SkipDeprecatedLogs, CoreDump: e.CoreDump,
		Environ: append(slices.Clip(a.o.Environ), a.c.Compliance.GoogleGRPC()...),
		Admin:   admin(a.c), Gateway: strings.HasPrefix(a.c.Node.GetId(), string(node.Router)+"~"), Termination: e.TerminationDrain,
		ExitOnZero: e.ExitOnZero, Minimum: e.MinimumDrain,
		Ignored: []uint16{a.c.ReadyPort, a.c.MetricsPort, a.c.SecureMetricsPort, a.c.SecureMergedPort},
		Kill:    a.o.Kill, Stdout: a.o.Stdout, Stderr: a.o.Stderr, Log: a.o.Log,
	}
	if e.Override != "" {
		text, err := os.ReadFile(e.Override)
		if err != nil {
			return fmt.Errorf("ISTIO_BOOTSTRAP_OVERRIDE: %w", err)
		}
		o.Override = string(text)
	}
	if e.Custom == "" {
		b, err := Bootstrap(a.c, a.o.LogJSON, a.o.OutlierLog)
		if err != nil {
			return err
		}
		text, err := bootstrap.JSON(b)
		if err != nil {
			return err
		}
		if err := writeFile(e.Config, text); err != nil {
			return err
		}
	}
	var err error
	a.envoy, err = envoy.New(o)
	return err
}

func (a *Agent) makeStatus() error {
	port := int(a.c.Proxy.GetStatusPort())
	if port == 0 {
		return nil
	}
	o := status.Options{
		Addr: net.JoinHostPort("", strconv.Itoa(port)), AppHost: a.c.Addr.String(), Probers: a.c.Probers, ProbeHTTP1: a.c.ProbeHTTP1,
		Scraping: a.c.Prometheus, Gatherer: a.registry, Registerer: a.registry,
		LocalMetrics: a.c.LocalMetrics, Agent: a, Log: a.log("probes"),
		Reserved: []uint16{a.c.SecureMetricsPort, a.c.SecureMergedPort},
	}
	if a.c.ProbeLocalhost {
		o.AppHost = ""
	}
	if a.dns != nil {
		o.Names = a.dns
	}
	if a.envoy != nil {
		o.EnvoyAdmin = admin(a.c)
		if a.c.MergeEnvoy {
			o.EnvoyStats = "http://" + net.JoinHostPort(loopback(a.c), strconv.Itoa(int(a.c.MetricsPort))) + "/stats/prometheus"
		}
	}
	var err error
	if a.status, err = status.New(o); err != nil {
		return err
	}
	a.add("status", a.status.Run)
	return nil
}

// Quit ends the agent at once.
func (a *Agent) Quit() { a.quitOnce.Do(func() { close(a.quit) }) }

// Drain starts to drain Envoy, if the agent runs one.
func (a *Agent) Drain() {
	if a.envoy != nil {
		safe.Go(a.o.Log, "drain", func() { a.envoy.Drain(context.Background()) })
	}
}

// makeHealth makes the health checks of the application if its ProxyConfig has a readinessProbe, as on a virtual
// machine.
func (a *Agent) makeHealth() error {
	probe := a.c.Proxy.GetReadinessProbe()
	if probe == nil {
		return nil
	}
	o := health.Options{Probe: probe, Report: a.proxy.SetHealth, Log: a.log("healthcheck")}
	if a.status != nil {
		o.Ready = a.status.Ready
	}
	checker, err := health.New(o)
	if err != nil {
		return err
	}
	a.add("health", checker.Run)
	return nil
}

// reapInterval is how often an agent that is PID 1 looks for orphaned processes that have ended.
const reapInterval = 5 * time.Second

// Run runs all components until ctx ends or one of them fails. Envoy drains and ends first, while the components
// still serve it. If Envoy exits by itself, the error is an *envoy.Exit.
func (a *Agent) Run(ctx context.Context) error {
	defer func() { _ = a.lock.Close() }()
	componentsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, shutDown := context.WithCancel(ctx)
	defer shutDown()
	var running sync.WaitGroup
	failed := make(chan error, len(a.components)+1)
	if os.Getpid() == 1 {
		a.add("init", func(ctx context.Context) error { return envoy.Reap(ctx, a.o.Log, reapInterval) })
	}
	for _, c := range a.components {
		running.Add(1)
		safe.Go(a.o.Log, c.name, func() {
			defer running.Done()
			err := catchPanic(c.name, func() error { return c.run(componentsCtx) })
			if err == nil && componentsCtx.Err() == nil {
				err = errors.New("ended before the agent")
			}
			if err != nil {
				a.o.Log.Error("a component of the agent ended early", "component", c.name, "err", err)
				failed <- fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	defer running.Wait()
	defer stop()

	envoyDone := make(chan error, 1)
	safe.Go(a.o.Log, "life", func() {
		if a.envoy == nil {
			<-ctx.Done()
			envoyDone <- nil
			return
		}
		envoyDone <- catchPanic("life", func() error { return a.envoy.Run(ctx) })
	})
	stopping := ctx.Done()
	quit := a.quit
	for {
		select {
		case err := <-envoyDone:
			return err
		case err := <-failed:
			shutDown()
			return errors.Join(err, <-envoyDone)
		case <-quit:
			quit = nil
			a.o.Log.Info("quitting because of a request for /quitquitquit")
			shutDown()
		case <-stopping:
			stopping = nil
			if a.status != nil {
				a.status.Draining()
			}
		}
	}
}

// catchPanic returns the error of fn, or an error if fn panics.
func catchPanic(name string, fn func() error) (err error) {
	panicked := safe.Do(name, func() { err = fn() })
	return errors.Join(panicked, err)
}
