package world

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
)

// stopGrace is how long an echo server may take to answer its last requests.
const stopGrace = 5 * time.Second

// Location is the place where a pod's programs run.
type Location interface {
	proxy.Location
	Listen(addr string) (net.Listener, error)
}

// Options say how to run a directory.
type Options struct {
	Directory Directory
	// Location makes the location of a pod. If it implements io.Closer, Close removes it.
	Location func(Pod) (Location, error)
	// Envoy is the binary, and Delta selects its protocol. Agent runs it. Without an agent it connects to the control
	// plane at XDS, and has no certificates.
	Envoy string
	Agent *proxy.Agent
	XDS   string
	Delta bool
	Mark  int
	// Admin returns the address of a pod's admin API.
	Admin func(Pod) (string, error)
	// WorkDir is the folder of bootstraps and logs.
	WorkDir string
}

// World is a directory whose pods run.
type World struct {
	o Options

	mu      sync.Mutex
	running map[string]*Running
	serving sync.WaitGroup
}

// Running is a running pod.
type Running struct {
	Pod
	Location Location
	// Proxy is nil for a pod without one.
	Proxy *proxy.Proxy

	server    *echo.Server
	listeners []net.Listener
}

// Start starts every pod of the directory. It does not wait for the proxies. After an error nothing is left running.
func Start(o Options) (*World, error) {
	w := &World{o: o, running: map[string]*Running{}}
	for _, p := range o.Directory.Pods {
		if _, err := w.Add(p); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// Add starts one more pod.
func (w *World) Add(p Pod) (*Running, error) {
	location, err := w.o.Location(p)
	if err != nil {
		return nil, err
	}
	r := &Running{Pod: p, Location: location}
	w.mu.Lock()
	w.running[p.Node.Name] = r
	w.mu.Unlock()
	if err := w.serve(r); err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Node.Name, err)
	}
	if !p.Proxied {
		return r, nil
	}
	admin, err := w.o.Admin(p)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Node.Name, err)
	}
	r.Proxy, err = proxy.Start(proxy.Options{
		Binary: w.o.Envoy, Location: location, Node: p.Node, Agent: w.o.Agent, XDS: w.o.XDS, Delta: w.o.Delta, Admin: admin, Mark: w.o.Mark,
		WorkDir: w.o.WorkDir,
	})
	return r, err
}

// serve starts the pod's echo server on its ports.
func (w *World) serve(r *Running) error {
	r.server = echo.New(echo.Options{
		Name: r.Node.Name, Version: r.Version, Calls: r.Calls,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			literal, err := w.o.Directory.Resolve(r.Node.Namespace, addr)
			if err != nil {
				return nil, err
			}
			return r.Location.DialContext(ctx, network, literal)
		}},
	})
	listen := func(port int, serve func(net.Listener) error) error {
		host := "0.0.0.0"
		if !r.Proxied {
			host = r.Node.Addr.String()
		}
		l, err := r.Location.Listen(net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		r.listeners = append(r.listeners, l)
		w.serving.Go(func() {
			// It ends with the error of its closed listener.
			_ = serve(l)
		})
		return nil
	}
	for _, port := range r.HTTP {
		if err := listen(port, r.server.ServeHTTP); err != nil {
			return err
		}
	}
	if len(r.HTTPS) > 0 {
		own, ok := w.o.Directory.Certificates[r.Node.Namespace+"/"+r.Credential]
		if !ok {
			return fmt.Errorf("there is no Secret %s of type kubernetes.io/tls in %s", r.Credential, r.Node.Namespace)
		}
		config := &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
		for _, port := range r.HTTPS {
			if err := listen(port, func(l net.Listener) error { return r.server.ServeHTTPS(l, config) }); err != nil {
				return err
			}
		}
	}
	for _, port := range r.TCP {
		if err := listen(port, r.server.ServeTCP); err != nil {
			return err
		}
	}
	return nil
}

// Pod returns a running pod, or nil.
func (w *World) Pod(name string) *Running {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[name]
}

// all returns the running pods by name.
func (w *World) all() []*Running {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*Running, 0, len(w.running))
	for _, r := range w.running {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Running) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return all
}

// Proxies returns the number of pods with a proxy.
func (w *World) Proxies() int {
	n := 0
	for _, r := range w.all() {
		if r.Proxy != nil {
			n++
		}
	}
	return n
}

// Ready waits until every proxy has accepted its configuration.
func (w *World) Ready(ctx context.Context) error {
	return w.each(func(r *Running) error { return r.Proxy.Ready(ctx) })
}

// Healthy returns nil if every proxy has accepted its whole configuration.
func (w *World) Healthy(ctx context.Context) error {
	return w.each(func(r *Running) error { return r.Proxy.Healthy(ctx) })
}

// Waits lists the requests and connections of proxies that are in flight, by listener and cluster.
func (w *World) Waits() string {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace/2)
	defer cancel()
	var b strings.Builder
	err := w.each(func(r *Running) error {
		for _, path := range []string{"/clusters", "/stats?filter=downstream_rq_active"} {
			body, err := r.Proxy.Get(ctx, path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(body)) {
				if underWay.MatchString(line) {
					fmt.Fprintf(&b, "%s: %s", r.Proxy.Name(), line)
				}
			}
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

var underWay = regexp.MustCompile(`(::rq_active::|::cx_active::|downstream_rq_active: )[1-9]`)

func (w *World) each(ask func(*Running) error) error {
	var errs []error
	for _, r := range w.all() {
		if r.Proxy != nil {
			errs = append(errs, ask(r))
		}
	}
	return errors.Join(errs...)
}

// Remove stops a pod that is no endpoint any more as a kubelet does: it still answers its last requests.
func (w *World) Remove(name string) {
	w.mu.Lock()
	r := w.running[name]
	delete(w.running, name)
	w.mu.Unlock()
	r.stop(stopGrace)
}

func (r *Running) stop(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	r.server.Stop(ctx)
	for _, l := range r.listeners {
		l.Close()
	}
	if r.Proxy != nil {
		r.Proxy.Stop()
	}
	if c, ok := r.Location.(interface{ Close() error }); ok {
		c.Close()
	}
}

// Stop stops all pods at once, and waits.
func (w *World) Stop() {
	var stopping sync.WaitGroup
	for _, r := range w.all() {
		stopping.Go(func() { r.stop(0) })
	}
	stopping.Wait()
	w.serving.Wait()
}
