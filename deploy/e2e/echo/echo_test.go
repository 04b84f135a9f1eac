package echo

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func start(t *testing.T, o Options, serve func(*Server, net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := New(o)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serve(s, l)
	}()
	t.Cleanup(func() {
		s.Stop(t.Context())
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

func TestMain(m *testing.M) { leaks.Main(m) }

func TestHTTP(t *testing.T) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	back := start(t, Options{Name: "back-1", Version: "v1"}, (*Server).ServeHTTP)
	front := start(t, Options{Name: "front-1", Calls: []string{"http://" + back + "/b"}, Transport: transport}, (*Server).ServeHTTP)
	broken := start(t, Options{Name: "broken-1", Calls: []string{"http://127.0.0.1:1/"}, Transport: transport}, (*Server).ServeHTTP)
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	for _, c := range []struct {
		transport *http.Transport
		addr      string
		want      Answer
		err       string
	}{
		{&http.Transport{}, front, Answer{Name: "front-1", Protocol: "HTTP/1.1", Path: "/a", Calls: []Answer{
			{Name: "back-1", Version: "v1", Protocol: "HTTP/1.1", Path: "/b"},
		}}, ""},
		{&http.Transport{Protocols: &h2}, back, Answer{Name: "back-1", Version: "v1", Protocol: "HTTP/2.0", Path: "/a"}, ""},
		{&http.Transport{}, broken, Answer{}, "status 502"},
	} {
		t.Cleanup(c.transport.CloseIdleConnections)
		resp, err := (&http.Client{Transport: c.transport}).Get("http://" + c.addr + "/a")
		must.Succeed(t, err)
		got, err := Decode(resp)
		if fmt.Sprint(err) != "<nil>" && (c.err == "" || !strings.HasPrefix(err.Error(), c.err)) || (err == nil) != (c.err == "") {
			t.Errorf("error %v, want %q", err, c.err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
	}
}

func TestGRPC(t *testing.T) {
	addr := start(t, Options{Name: "rpc-1"}, (*Server).ServeHTTP)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	var header metadata.MD
	resp, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.Header(&header))
	must.Succeed(t, err)
	if resp.Status != healthv1.HealthCheckResponse_SERVING || cmp.Diff(header.Get(Header), []string{"rpc-1"}) != "" {
		t.Errorf("status %s from %v", resp.Status, header.Get(Header))
	}
}

func TestTCP(t *testing.T) {
	addr := start(t, Options{Name: "tcp-1"}, (*Server).ServeTCP)
	conn, err := net.Dial("tcp", addr)
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	for _, said := range []string{"one", "two"} {
		fmt.Fprintln(conn, said)
		got, err := bufio.NewReader(io.LimitReader(conn, int64(len("tcp-1 one\n")))).ReadString('\n')
		if err != nil || got != "tcp-1 "+said+"\n" {
			t.Errorf("answered %q, %v", got, err)
		}
	}
}
