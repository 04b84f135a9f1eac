package mtls

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// port is one of the server's pod and of its service, and the protocol that is spoken there.
type port struct {
	name         string
	declared     string // its name in the Service, which tells its protocol
	service, pod int
	server       string // the flag of the echo server that serves it; empty: the test does
	http         bool
	alpn         string // the protocols that a sidecar offers
	speak        func(ctx context.Context, conn net.Conn) error
}

// ports has a port for each protocol, and ports without one, whose protocol is detected.
var ports = []port{
	{"HTTP", "http", 80, 8080, "http", true, "istio-http/1.1", speakHTTP},
	{"TCP", "tcp", 90, 9090, "tcp", false, "istio", speakLines},
	{"detected HTTP", "any", 100, 8081, "http", true, "istio-http/1.1", speakHTTP},
}

// morePorts are the other ports of TestModes.
var morePorts = []port{
	{"detected TCP", "any-tcp", 101, 9091, "tcp", false, "istio", speakLines},
	{"HTTP/2", "http2", 110, 8082, "http", true, "istio-h2", speakHTTP2},
	{"gRPC", "grpc", 120, 8083, "http", true, "istio-h2", speakGRPC},
	{"TLS", "tls", 130, 9443, "", false, "istio", speakTLS},
}

// meshYAML returns a server of echo that has the ports, and one client with a sidecar and one without.
func meshYAML(ports ...port) string {
	var list []string
	args := ""
	for _, p := range ports {
		list = append(list, fmt.Sprintf("{name: %s, port: %d, targetPort: %d}", p.declared, p.service, p.pod))
		if p.server != "" {
			args += fmt.Sprintf(`"-%s=%d", `, p.server, p.pod)
		}
	}
	return suite.NamespacesYAML("istio-system", "a") + suite.ServiceYAML("echo", "a", "10.96.0.10", list...) +
		suite.PodYAML("echo", "a", "10.10.0.11", args, suite.Sidecar) +
		suite.PodYAML("client", "a", "10.10.0.12", "", suite.Sidecar) +
		suite.PodYAML("plain", "a", "10.10.0.13", "", suite.Outside)
}

// dial connects, by TLS if secure is set.
func dial(ctx context.Context, from world.Location, address string, secure *tls.Config) (net.Conn, error) {
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if secure != nil {
		conn = tls.Client(conn, secure)
	}
	return conn, nil
}

func speakHTTP(ctx context.Context, conn net.Conn) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+conn.RemoteAddr().String()+"/", nil)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the status is %d", resp.StatusCode)
	}
	return nil
}

func speakLines(_ context.Context, conn net.Conn) error {
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return err
	}
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasSuffix(said, "hello\n") {
		return fmt.Errorf("the answer is %q", said)
	}
	return err
}

// over returns a dialer that connects nowhere: the connection is there.
func over(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) { return conn, nil }
}

func speakHTTP2(ctx context.Context, conn net.Conn) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return over(conn)(ctx, address) }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+conn.RemoteAddr().String()+"/", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		return fmt.Errorf("the answer is %s by %s", resp.Status, resp.Proto)
	}
	return nil
}

func speakGRPC(ctx context.Context, conn net.Conn) error {
	client, err := grpc.NewClient("passthrough:///"+conn.RemoteAddr().String(), grpc.WithContextDialer(over(conn)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// speakTLS speaks the application's own TLS, with lines inside.
func speakTLS(ctx context.Context, conn net.Conn) error {
	return speakLines(ctx, tls.Client(conn, &tls.Config{InsecureSkipVerify: true})) //nolint:gosec // whether it is reached is what is tried
}

// serveTLS runs an application with its own TLS in the server's pod, which answers each line with the line.
func serveTLS(t *testing.T, m mesh) {
	t.Helper()
	chain, key, _, err := m.Issuer.Issue(t.Context(), "a", "application")
	must.Succeed(t, err)
	own, err := tls.X509KeyPair(chain, key)
	must.Succeed(t, err)
	l, err := m.World.Pod("echo").Location.Listen("10.10.0.11:9443")
	must.Succeed(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{own}}) //nolint:gosec // any version will do
			if said, err := bufio.NewReader(secure).ReadString('\n'); err == nil {
				_, _ = fmt.Fprint(secure, said)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
}
