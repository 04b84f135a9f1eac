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

	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// port is one of the server's pod and of its service, and the protocol that is spoken there.
type port struct {
	name         string
	service, pod int
	http         bool
	alpn         string // what a sidecar offers for it
	speak        func(ctx context.Context, conn net.Conn) error
}

// ports are of each protocol that a port can have, and of those that have none and are detected.
var ports = []port{
	{"HTTP", 80, 8080, true, "istio-http/1.1", speakHTTP},
	{"TCP", 90, 9090, false, "istio", speakLines},
	{"detected HTTP", 100, 8081, true, "istio-http/1.1", speakHTTP},
}

// morePorts are those that TestModes has beside these.
var morePorts = []port{
	{"detected TCP", 101, 9091, false, "istio", speakLines},
	{"HTTP/2", 110, 8082, true, "istio-h2", speakHTTP2},
	{"gRPC", 120, 8083, true, "istio-h2", speakGRPC},
	{"TLS", 130, 9443, false, "istio", speakTLS},
}

// moreYAML has their ports.
const moreYAML = `  - {name: any-tcp, port: 101, targetPort: 9091}
  - {name: http2, port: 110, targetPort: 8082}
  - {name: grpc, port: 120, targetPort: 8083}
  - {name: tls, port: 130, targetPort: 9443}
`

func withMorePorts(objects string) string {
	const last = "  - {name: any, port: 100, targetPort: 8081}\n"
	objects = strings.Replace(objects, last, last+moreYAML, 1)
	return strings.Replace(objects, `"-tcp=9090"]`, `"-tcp=9090", "-tcp=9091", "-http=8082", "-http=8083"]`, 1)
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
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return over(conn)(ctx, address) }}
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
	client, err := grpc.NewClient("passthrough:///"+conn.RemoteAddr().String(), grpc.WithContextDialer(over(conn)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// speakTLS speaks TLS of the application's own, and lines inside.
func speakTLS(ctx context.Context, conn net.Conn) error {
	return speakLines(ctx, tls.Client(conn, &tls.Config{InsecureSkipVerify: true})) //nolint:gosec // whether it is reached is what is tried
}

// serveTLS runs an application in the server's pod that speaks TLS itself, and answers each line with it.
func serveTLS(t *testing.T, m mesh) {
	t.Helper()
	chain, key, _, err := m.Issuer.Issue(t.Context(), "a", "application")
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.World.Pod("echo").Location.Listen("10.10.0.11:9443")
	if err != nil {
		t.Fatal(err)
	}
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
