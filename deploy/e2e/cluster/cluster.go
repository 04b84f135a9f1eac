package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

const (
	// adminToken is no secret: it belongs to a cluster on loopback that lives for one test.
	adminToken = "admin-of-a-test"
	// DefaultServiceCIDR holds the addresses of Services, of both families.
	DefaultServiceCIDR = "10.96.0.0/12,fd00:10:96::/112"
	// startWithin is how long one process may take until it is ready. kube-apiserver takes some five seconds on two idle
	// cores.
	startWithin = 3 * time.Minute
)

// Options say how to run a cluster. The zero value is valid.
type Options struct {
	// Binaries are found by Find if they are empty.
	Binaries Binaries
	// Dir is the folder for data, certificates and logs. By default a new folder is used, which Stop removes.
	Dir string
	// Host is the address that kube-apiserver listens on. The default is 127.0.0.1.
	Host string
	// ServiceCIDR is a range of addresses for Services, or two ranges of different families. The default is
	// DefaultServiceCIDR.
	ServiceCIDR string
	// EtcdArgs and APIServerArgs are added to the command lines, such as --min-request-timeout=5.
	EtcdArgs      []string
	APIServerArgs []string
}

// Cluster is the running API of a Kubernetes cluster.
type Cluster struct {
	o         Options
	ownDir    bool
	authority *authority
	etcd      *process
	etcdURL   string
	apiServer *process
	// address is the host and port of kube-apiserver.
	address string

	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	discovery discovery.CachedDiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	http      *http.Client
}

// Start starts a cluster and waits until its API is ready.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{o: o}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		c.killAll() // the folder with the logs is kept
		return nil, err
	}
	return c, nil
}

// Stop ends the cluster at once.
func (c *Cluster) Stop() {
	c.killAll()
	c.http.CloseIdleConnections()
	if c.ownDir {
		_ = os.RemoveAll(c.o.Dir)
	}
}

// Dir returns the folder with the logs etcd.log and kube-apiserver.log.
func (c *Cluster) Dir() string { return c.o.Dir }

// Client returns a client with the rights of the administrator.
func (c *Cluster) Client() kubernetes.Interface { return c.typed }

// Dynamic returns a client for all kinds, with the rights of the administrator.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// KillAPIServer kills kube-apiserver.
func (c *Cluster) KillAPIServer() { c.apiServer.kill() }

// StartAPIServer starts kube-apiserver again at its address, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return c.apiServer.start(ctx)
}

// RestartAPIServer kills kube-apiserver and starts it again at its address.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.KillAPIServer()
	return c.StartAPIServer(ctx)
}

// FreezeAPIServer stops kube-apiserver until ThawAPIServer. Its connections stay open, and requests get no answer.
func (c *Cluster) FreezeAPIServer() error { return c.apiServer.signal(syscall.SIGSTOP) }

// ThawAPIServer resumes kube-apiserver.
func (c *Cluster) ThawAPIServer() error { return c.apiServer.signal(syscall.SIGCONT) }

// KillEtcd kills etcd. Its data stays.
func (c *Cluster) KillEtcd() { c.etcd.kill() }

// StartEtcd starts etcd again at its address, and waits until it is ready.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return c.etcd.start(ctx)
}

// FreezeEtcd stops etcd until ThawEtcd.
func (c *Cluster) FreezeEtcd() error { return c.etcd.signal(syscall.SIGSTOP) }

// ThawEtcd resumes etcd.
func (c *Cluster) ThawEtcd() error { return c.etcd.signal(syscall.SIGCONT) }

// prepare creates everything that outlives a process: the folder, keys and certificates.
func (c *Cluster) prepare() error {
	if c.o.Binaries == (Binaries{}) {
		found, err := Find()
		if err != nil {
			return err
		}
		c.o.Binaries = found
	}
	if c.o.Dir == "" {
		dir, err := os.MkdirTemp("", "istiod-lite-cluster-")
		if err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		c.o.Dir, c.ownDir = dir, true
	}
	if c.o.Host == "" {
		c.o.Host = "127.0.0.1"
	}
	if c.o.ServiceCIDR == "" {
		c.o.ServiceCIDR = DefaultServiceCIDR
	}
	var err error
	if c.authority, err = newAuthority("authority of " + filepath.Base(c.o.Dir)); err != nil {
		return err
	}
	cert, key, err := c.authority.serving(c.o.Host, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.path("serving.crt"), cert, 0o600),
		os.WriteFile(c.path("serving.key"), key, 0o600),
		writeKey(c.path("serviceaccounts.key")),
		os.WriteFile(c.path("tokens.csv"), []byte(adminToken+",admin,admin,system:masters\n"), 0o600),
	)
}

func (c *Cluster) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := onFreePorts(func() error { return c.startEtcd(ctx) }); err != nil {
		return err
	}
	if err := onFreePorts(func() error { return c.startAPIServer(ctx) }); err != nil {
		return err
	}
	return c.Admin().WriteFile(c.Kubeconfig())
}

// onFreePorts calls start again if another program has taken a port first.
func onFreePorts(start func() error) error {
	for try := 1; ; try++ {
		if err := start(); !errors.Is(err, errPortTaken) || try == 5 {
			return err
		}
	}
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	port, err := freeport.Pick(ctx, c.o.Host)
	if err != nil {
		return err
	}
	c.address = net.JoinHostPort(c.o.Host, port)
	if err := c.makeClients(); err != nil {
		return err
	}
	c.apiServer = &process{name: "kube-apiserver", binary: c.o.Binaries.APIServer, logFile: c.path("kube-apiserver.log"),
		ready: c.apiServerReady, args: append([]string{
			"--etcd-servers=" + c.etcdURL,
			"--bind-address=" + c.o.Host,
			"--secure-port=" + port,
			"--tls-cert-file=" + c.path("serving.crt"),
			"--tls-private-key-file=" + c.path("serving.key"),
			"--cert-dir=" + c.path("certs"),
			// An address for documentation of RFC 5737. Without an address, kube-apiserver looks for an interface with a default
			// route.
			"--advertise-address=192.0.2.1",
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=" + c.o.ServiceCIDR,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + c.path("serviceaccounts.key"),
			"--service-account-signing-key-file=" + c.path("serviceaccounts.key"),
			"--token-auth-file=" + c.path("tokens.csv"),
			"--authorization-mode=RBAC",
			"--allow-privileged=true",
			"--max-requests-inflight=3000",
			"--max-mutating-requests-inflight=1000",
			"--shutdown-delay-duration=0s",
		}, c.o.APIServerArgs...)}
	return c.apiServer.start(ctx)
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return c.typed.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (c *Cluster) makeClients() error {
	config := c.Admin().Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	typed, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	untyped, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	c.http, c.typed, c.dynamic = client, typed, untyped
	c.discovery = memory.NewMemCacheClient(typed.Discovery())
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.discovery)
	return nil
}

func (c *Cluster) killAll() {
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil {
			p.kill()
		}
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.o.Dir, name) }
