package traffic

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

// The Gateway's ports.
const (
	gatewayAPIPlain = "10.10.0.2:8080"
	secure          = "10.10.0.2:8443"
	ledger          = "10.10.0.2:9000"
)

// gatewayAPIMesh is the sample, running.
type gatewayAPIMesh struct {
	mesh
	roots *x509.CertPool
}

// startGatewayAPI runs the sample, with more files, until the test ends.
func startGatewayAPI(t *testing.T, more map[string]string) gatewayAPIMesh {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, samples.Copy(samples.GatewayAPI, dir))
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must.Succeed(t, err)
		if e.Name() == samples.RootsFile {
			roots.AppendCertsFromPEM(text)
			continue
		}
		files[e.Name()] = string(text)
		if e.Name() != samples.CertificatesFile {
			files[e.Name()] = strings.ReplaceAll(files[e.Name()], "10.20.", "10.10.") // the network of the tests
		}
	}
	for name, text := range more {
		files[name] = text
	}
	return gatewayAPIMesh{start(t, "", suite.MeshOptions{Files: files, CA: true}), roots}
}

// gatewayAPIReply is the result of a request.
type gatewayAPIReply struct {
	status int
	header http.Header
	answer echo.Answer // empty unless a server of the mesh answered
}

// by returns the name of the server that answered, or the status.
func (r gatewayAPIReply) by() string {
	if r.answer.Name == "" {
		return strconv.Itoa(r.status)
	}
	return r.answer.Name
}

// dial connects to an address.
type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// get sends a request. A URL with the scheme https goes to the Gateway's port for TLS, with the host's name.
func (m gatewayAPIMesh) get(d dial, at, url string, header map[string]string) (gatewayAPIReply, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return gatewayAPIReply{}, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	transport := &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: m.roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return d(ctx, network, at) },
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return gatewayAPIReply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return gatewayAPIReply{}, err
	}
	r := gatewayAPIReply{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &r.answer)
	}
	return r, err
}

// outside sends a request to the Gateway as a client outside the mesh.
func (m gatewayAPIMesh) outside(url string, header map[string]string) gatewayAPIReply {
	m.t.Helper()
	at := gatewayAPIPlain
	if strings.HasPrefix(url, "https:") {
		at = secure
	}
	r, err := m.get(new(net.Dialer).DialContext, at, url, header)
	if err != nil {
		m.t.Fatalf("%s: %v", url, err)
	}
	return r
}

// inside sends a request to a service as a pod, through its sidecar.
func (m gatewayAPIMesh) inside(pod, url string, header map[string]string) gatewayAPIReply {
	m.t.Helper()
	directory := map[string]string{"reviews": "10.96.0.30:9080", "ratings": "10.96.0.40:9080"}
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	r, err := m.get(m.Pod(pod).Location.DialContext, directory[host], url, header)
	if err != nil {
		m.t.Fatalf("%s from %s: %v", url, pod, err)
	}
	return r
}

// check calls the health service of a server over gRPC, and returns the name of the server.
func (m gatewayAPIMesh) check(authority string) (string, error) {
	m.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+gatewayAPIPlain, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(authority))
	must.Succeed(m.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	var header metadata.MD
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
		return "", err
	}
	return strings.Join(header.Get(echo.Header), ","), nil
}

// list calls another method of the same service.
func (m gatewayAPIMesh) list(authority string) error {
	m.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+gatewayAPIPlain, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(authority))
	must.Succeed(m.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).List(ctx, &healthv1.HealthListRequest{})
	return err
}

// line sends a line over TCP, and returns the one that comes back.
func (m gatewayAPIMesh) line(addr, text string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return "", err
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(got), err
}

// received is how many requests a proxy sent to a port of a service.
func (m gatewayAPIMesh) received(pod, cluster string) int {
	m.t.Helper()
	text, err := m.Pod(pod).Proxy.Get(m.t.Context(), "/clusters")
	must.Succeed(m.t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, cluster+"::"); ok {
			if _, value, ok := strings.Cut(count, "::rq_total::"); ok {
				i, err := strconv.Atoi(strings.TrimSpace(value))
				must.Succeed(m.t, err)
				n += i
			}
		}
	}
	return n
}

// validate returns the errors of the directory, one per line: "file:line:column: error: object: field: message".
func (m gatewayAPIMesh) validate() string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), os.Getenv(suite.PilotVar), "validate", m.Dir) //nolint:gosec // The program under test.
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, " objects in force") {
			all.WriteString(strings.TrimPrefix(line, m.Dir+"/"))
		}
	}
	return all.String()
}

// edit changes a file of the directory.
func (m gatewayAPIMesh) edit(file string, oldnew ...string) {
	m.t.Helper()
	path := filepath.Join(m.Dir, file)
	text, err := os.ReadFile(path)
	must.Succeed(m.t, err)
	next := strings.NewReplacer(oldnew...).Replace(string(text))
	if next == string(text) {
		m.t.Fatalf("%s has nothing of %q", file, oldnew)
	}
	suite.Write(m.t, path, next)
}

// becomes waits until a check returns the wanted text.
func (m gatewayAPIMesh) becomes(what, want string, is func() string) {
	m.t.Helper()
	last := ""
	suite.Eventually(m.t, what, func() bool {
		if got := is(); got != last {
			m.t.Logf("%s: %s", what, got)
			last = got
		}
		return last == want
	})
}
