package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Probe is one check of an application. Exactly one of HTTP, TCP, GRPC and Exec is set.
type Probe struct {
	HTTP *HTTP
	TCP  string // HOST:PORT
	GRPC *GRPC
	Exec []string // command and its arguments
	// Timeout bounds the check. Zero means no limit besides the context.
	Timeout time.Duration
	// Source makes connections from SourceIPv4 and SourceIPv6, addresses that the rules of traffic capture exempt.
	// Otherwise the probe of the agent's own pod would go through Envoy.
	Source bool
}

// HTTP is a GET request. It succeeds if the response has a status from 200 to 399.
type HTTP struct {
	URL    string
	Header http.Header // Host becomes the request's host
	HTTP2  bool        // allow HTTP/2 over TLS, as a kubelet does
}

// GRPC is a request to the standard health service, without TLS.
type GRPC struct {
	Addr string
	// Service is the service whose health is requested. Empty means the server's.
	Service string
}

// Addresses from which Envoy and the agent call the application.
const (
	SourceIPv4 = "127.0.0.6"
	SourceIPv6 = "::6"
)

// HTTPError is the error of a response with a status that means failure.
type HTTPError struct{ Code int }

func (e *HTTPError) Error() string { return fmt.Sprintf("HTTP %d", e.Code) }

const (
	maxBody      = 10 << 10 // bytes of a response that are read, the same as in a kubelet
	maxHeader    = 64 << 10 // bytes
	maxRedirects = 10
	maxOutput    = 1 << 10 // bytes of a command's output that are reported
)

// Check makes the probe. It returns nil if the application is healthy.
func (p *Probe) Check(ctx context.Context) error {
	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Timeout)
		defer cancel()
	}
	switch {
	case p.HTTP != nil:
		return p.checkHTTP(ctx)
	case p.TCP != "":
		conn, err := p.dial(ctx, "tcp", p.TCP)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.GRPC != nil:
		return p.checkGRPC(ctx)
	case len(p.Exec) > 0:
		return p.checkExec(ctx)
	}
	return errors.New("the probe has none of HTTP, TCP, GRPC and Exec")
}

// dial connects, from an exempt address if Source is set.
func (p *Probe) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{}
	if p.Source {
		source := SourceIPv4
		if host, _, err := net.SplitHostPort(addr); err == nil {
			if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
				source = SourceIPv6
			}
		}
		if source == SourceIPv4 {
			network = "tcp4" // localhost has addresses of both families
		}
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	return d.DialContext(ctx, network, addr)
}

func (p *Probe) checkHTTP(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.HTTP.URL, nil)
	if err != nil {
		return err
	}
	if p.HTTP.Header != nil {
		req.Header = p.HTTP.Header.Clone()
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	protocols := []string{"http/1.1"}
	if p.HTTP.HTTP2 {
		protocols = append([]string{"h2"}, protocols...)
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: p.dial,
			// The certificate is not verified, as in a kubelet, because it is for the application's clients and not for
			// its address.
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}, //nolint:gosec // not verified
			ForceAttemptHTTP2:      p.HTTP.HTTP2,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		// Redirects to the same host are followed. A redirect to another host is the final response.
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= maxRedirects {
				return fmt.Errorf("%d redirects", maxRedirects)
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody) // only the status matters
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return &HTTPError{resp.StatusCode}
	}
	return nil
}

func (p *Probe) checkGRPC(ctx context.Context) error {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return p.dial(ctx, "tcp", addr) }
	conn, err := grpc.NewClient("passthrough:///"+p.GRPC.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithUserAgent("kube-probe"))
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: p.GRPC.Service})
	if err != nil {
		return err
	}
	if resp.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("gRPC health: %s", resp.Status)
	}
	return nil
}

func (p *Probe) checkExec(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.Exec[0], p.Exec[1:]...)
	cmd.WaitDelay = time.Second // for child processes that hold its output
	out := &head{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("%s: %w: %s", p.Exec[0], err, strings.TrimSpace(string(out.b)))
}

// head keeps the beginning of the text written to it.
type head struct{ b []byte }

func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), maxOutput-len(h.b))]...)
	return len(b), nil
}
