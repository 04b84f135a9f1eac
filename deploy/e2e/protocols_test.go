package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// dial connects as somebody: a pod, or a caller outside the mesh.
type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// send sends one request and returns who answered.
type send func(ctx context.Context) (from string, err error)

// overHTTP keeps its connections, as programs do. The answer must have come in the protocol that was asked for.
func overHTTP(d dial, protocol, addr, host string) send {
	var p http.Protocols
	p.SetHTTP1(protocol == "HTTP/1.1")
	p.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
	client := &http.Client{Transport: &http.Transport{DialContext: d, Protocols: &p, MaxIdleConnsPerHost: 32}}
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
		if err != nil {
			return "", err
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		if resp.Proto != protocol {
			resp.Body.Close()
			return "", fmt.Errorf("answered in %s, want %s", resp.Proto, protocol)
		}
		a, err := echo.Decode(resp)
		return a.Name, err
	}
}

// overGRPC checks the health of a server, which names itself in the header.
func overGRPC(d dial, addr string) (send, func() error, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d(ctx, "tcp", addr) }))
	if err != nil {
		return nil, nil, err
	}
	client := healthv1.NewHealthClient(conn)
	return func(ctx context.Context) (string, error) {
		var header metadata.MD
		resp, err := client.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&header))
		if err != nil {
			return "", err
		}
		if resp.Status != healthv1.HealthCheckResponse_SERVING {
			return "", fmt.Errorf("status %s", resp.Status)
		}
		return strings.Join(header.Get(echo.Header), ","), nil
	}, conn.Close, nil
}

// overTCP makes a connection for each line.
func overTCP(d dial, addr string) send {
	return func(ctx context.Context) (string, error) {
		conn, err := d(ctx, "tcp", addr)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if deadline, ok := ctx.Deadline(); ok {
			conn.SetDeadline(deadline)
		}
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return "", err
		}
		name, said, _ := strings.Cut(line, " ")
		if said != "hello\n" {
			return "", fmt.Errorf("answered %q", line)
		}
		return name, nil
	}
}

// refused turns a request around: it succeeds when the sidecar itself refuses, at once and not by silence.
func refused(s send) send {
	return func(ctx context.Context) (string, error) {
		from, err := s(ctx)
		switch {
		case err == nil:
			return "", fmt.Errorf("%s answered, want nobody", from)
		case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
			return "", fmt.Errorf("no refusal: %w", err)
		}
		return "refused", nil
	}
}

// inTurn sends with each in turn; it is for one caller at a time.
func inTurn(all ...send) send {
	i := 0
	return func(ctx context.Context) (string, error) {
		i++
		return all[i%len(all)](ctx)
	}
}
