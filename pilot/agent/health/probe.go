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

// Probe asks an application one question. Exactly one of HTTP, TCP, GRPC and Exec is set.
type Probe struct {
	HTTP    *HTTP
	TCP     string // host:port
	GRPC    *GRPC
	Exec    []string      // a command and its arguments
	Timeout time.Duration // 0: until the context ends
	// Source makes connections come from the addresses that the rules of captured traffic leave alone: SourceIPv4 and
	// SourceIPv6. Otherwise what the agent sends to its own pod would go through Envoy.
	Source bool
}

// HTTP is a GET request. Codes from 200 to 399 are a success.
type HTTP struct {
	URL    string
	Header http.Header // Host is sent as the host
}

// GRPC is a request to the standard health service, without TLS.
type GRPC struct {
	Addr    string
	Service string // whose health is asked for; empty: the server's
}

// From where Envoy and the agent call the application.
const (
	SourceIPv4 = "127.0.0.6"
	SourceIPv6 = "::6"
)

// HTTPError says that an application answered, and how.
type HTTPError struct{ Code int }

func (e *HTTPError) Error() string { return fmt.Sprintf("HTTP %d", e.Code) }

const (
	maxBody      = 10 << 10 // of an answer is read, as much as a kubelet reads
	maxHeader    = 64 << 10 // bytes
	maxRedirects = 10
	maxOutput    = 1 << 10 // of a command is reported
)

// Check asks, and returns nil where the application is well.
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
	return errors.New("a probe without a question")
}

// dial connects, from the address that is left alone where Source says so.
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
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: p.dial,
			// As a kubelet: the certificate is for the application's clients, not for its address.
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}, //nolint:gosec // see above
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		// A redirect within the application is followed; one that leads elsewhere is a success by its code.
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
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody) // the code alone counts
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return &HTTPError{resp.StatusCode}
	}
	return nil
}

func (p *Probe) checkGRPC(ctx context.Context) error {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return p.dial(ctx, "tcp", addr) }
	conn, err := grpc.NewClient("passthrough:///"+p.GRPC.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial), grpc.WithUserAgent("kube-probe"))
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
	cmd.WaitDelay = time.Second // for what it started and that holds its output
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

// head keeps the beginning of what is written to it.
type head struct{ b []byte }

func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), maxOutput-len(h.b))]...)
	return len(b), nil
}
