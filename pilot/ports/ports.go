package ports

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"google.golang.org/grpc"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Names of ports in errors and logs.
const (
	GRPC       = "grpc"
	SecureGRPC = "secure grpc"
	Plain      = "http"
	Webhooks   = "https"
	Monitoring = "monitoring"
	ControlZ   = "controlz"
)

// Streams bounds the connections of ports that serve streams.
type Streams interface {
	Listen(net.Listener) net.Listener
}

// Ports are the ports of one server. The zero value is ready for use.
type Ports struct {
	Logger  *slog.Logger
	Limits  limits.Limits
	Streams Streams

	mu    sync.Mutex
	bound map[string]string // host:port by name of the port
	http  []*httpServing
}

// Addresses returns the addresses of the open ports.
func (p *Ports) Addresses() Addresses {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bound
	return Addresses{
		GRPC: b[GRPC], SecureGRPC: b[SecureGRPC], HTTP: b[Plain], HTTPS: b[Webhooks], Monitoring: b[Monitoring], ControlZ: b[ControlZ],
	}
}

// Share declares that a port, if it is open, also serves another one, such as gRPC on the HTTP port.
func (p *Ports) Share(name, port string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if address, listens := p.bound[port]; listens {
		p.bound[name] = address
	}
}

// listen opens a TCP port. The system chooses a port for port 0.
func (p *Ports) listen(ctx context.Context, name, address string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lists.Put(&p.bound, name, l.Addr().String())
	return l, nil
}

// ServeHTTP opens a port and serves it until Close. It does nothing for an empty address.
func (p *Ports) ServeHTTP(ctx context.Context, name, address string, handler http.Handler, o HTTP) error {
	if address == "" {
		return nil
	}
	l, err := p.listen(ctx, name, address)
	if err != nil {
		return err
	}
	if o.H2C {
		l = p.Streams.Listen(l)
	}
	if o.Conns > 0 {
		l = quota.Listen(l, quota.NewCounter[netip.Addr](o.Conns))
	}
	h := &httpServing{l, newHTTP(p.Logger, p.Limits, handler, o)}
	p.mu.Lock()
	p.http = append(p.http, h)
	p.mu.Unlock()
	p.serve(name, h.serve)
	return nil
}

// ServeGRPC opens a port and serves it until g stops. It does nothing for an empty address.
func (p *Ports) ServeGRPC(ctx context.Context, name, address string, g *grpc.Server) error {
	if address == "" {
		return nil
	}
	l, err := p.listen(ctx, name, address)
	if err != nil {
		return err
	}
	l = p.Streams.Listen(l)
	p.serve(name, func() error { return g.Serve(l) })
	return nil
}

func (p *Ports) serve(name string, serve func() error) {
	safe.Go(p.Logger, name, func() {
		if err := serve(); err != nil {
			p.Logger.Error("failed to serve port", "port", name, "err", err)
		}
	})
}

// Close closes the HTTP ports. Current requests may finish until ctx ends.
func (p *Ports) Close(ctx context.Context) {
	p.mu.Lock()
	list := p.http
	p.mu.Unlock()
	for _, h := range list {
		h.close(ctx)
	}
}
