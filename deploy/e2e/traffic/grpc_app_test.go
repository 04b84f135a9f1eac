package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Methods of the service: each returns the name of the server.
const (
	hello  = "/test.Greeter/Hello"
	secret = "/test.Greeter/Secret"
)

// grpcMesh is a control plane that follows a directory, and the pods of the directory.
type grpcMesh struct{ mesh }

// bootstrap returns the bootstrap of an application in a pod, and writes the certificate of its account to files.
func (m grpcMesh) bootstrap(pod, account, region, zone string) []byte {
	m.t.Helper()
	chain, key, roots, err := m.Issuer.Issue(m.t.Context(), "a", account)
	must.Succeed(m.t, err)
	dir := m.t.TempDir()
	files := map[string]string{}
	for name, text := range map[string][]byte{"chain": chain, "key": key, "roots": roots} {
		files[name] = filepath.Join(dir, name+".pem")
		must.Succeed(m.t, os.WriteFile(files[name], text, 0o600))
	}
	address := m.Pod(pod).Node.Addr.String()
	text, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": m.Pilot.GRPC, "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{
			"id":       "sidecar~" + address + "~" + pod + ".a~a.svc.cluster.local",
			"metadata": map[string]any{"GENERATOR": "grpc", "NAMESPACE": "a", "INSTANCE_IPS": address},
			"locality": map[string]any{"region": region, "zone": zone},
		},
		"certificate_providers": map[string]any{"default": map[string]any{"plugin_name": "file_watcher", "config": map[string]any{
			"certificate_file": files["chain"], "private_key_file": files["key"], "ca_certificate_file": files["roots"], "refresh_interval": "900s",
		}}},
		"server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
	})
	must.Succeed(m.t, err)
	return text
}

// grpcServer is an application that serves.
type grpcServer struct {
	name    string
	broken  atomic.Bool // it answers with an error
	serving atomic.Bool // it has its listener
}

// serve runs a server in a pod until the test ends.
func (m grpcMesh) serve(pod, region, zone string) *grpcServer {
	m.t.Helper()
	s := &grpcServer{name: pod}
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	must.Succeed(m.t, err)
	x, err := xds.NewGRPCServer(
		grpc.Creds(creds), xds.BootstrapContentsForTesting(m.bootstrap(pod, "greeter", region, zone)),
		xds.ServingModeCallback(func(_ net.Addr, a xds.ServingModeChangeArgs) {
			s.serving.Store(a.Mode == connectivity.ServingModeServing)
		}),
	)
	must.Succeed(m.t, err)
	x.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Greeter", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		{MethodName: "Hello", Handler: s.handle(hello)}, {MethodName: "Secret", Handler: s.handle(secret)},
	}}, s)
	suite.Serve(m.t, m.Pod(pod), port, x.Serve, x.Stop)
	return s
}

func (s *grpcServer) handle(method string) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := &emptypb.Empty{}
		if err := decode(in); err != nil {
			return nil, err
		}
		answer := func(context.Context, any) (any, error) {
			if s.broken.Load() {
				return nil, status.Error(codes.Internal, "broken")
			}
			return wrapperspb.String(s.name), nil
		}
		if intercept == nil {
			return answer(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: s, FullMethod: method}, answer)
	}
}

// dialer returns a function that connects from a pod.
func (m grpcMesh) dialer(pod string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return m.Pod(pod).Location.DialContext(ctx, "tcp", address)
	}
}

// grpcClient is an application that calls.
type grpcClient struct {
	*grpc.ClientConn
	t *testing.T
}

// dial returns a client of a target, as an application of a pod calls it.
func (m grpcMesh) dial(pod, account, target string) grpcClient {
	m.t.Helper()
	config := m.bootstrap(pod, account, "region1", "zone1")
	builder, err := xds.NewXDSResolverWithConfigForTesting(config) // Only this function takes a bootstrap per client.
	must.Succeed(m.t, err)
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	must.Succeed(m.t, err)
	conn, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(builder), grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(m.dialer(pod)))
	must.Succeed(m.t, err)
	m.t.Cleanup(func() { _ = conn.Close() })
	return grpcClient{conn, m.t}
}

// call returns the name of the server that answers. headers are pairs of names and values.
func (c grpcClient) call(method string, headers ...string) (string, error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(), headers...), callTimeout)
	defer cancel()
	var name wrapperspb.StringValue
	err := c.Invoke(ctx, method, &emptypb.Empty{}, &name)
	return name.Value, err
}

// answers calls n times and returns how often each server answered. Errors are counted by their codes.
func (c grpcClient) answers(n int, headers ...string) map[string]int {
	got := map[string]int{}
	for range n {
		name, err := c.call(hello, headers...)
		if err != nil {
			name = fmt.Sprint(status.Code(err))
		}
		got[name]++
	}
	return got
}

// only waits until only one server answers.
func (c grpcClient) only(name string, headers ...string) {
	c.t.Helper()
	suite.Eventually(c.t, fmt.Sprintf("only %s answers %v", name, headers), func() bool { return c.answers(10, headers...)[name] == 10 })
}

// why runs the command why for a call. It returns the status, and the pods that may answer, separated by commas.
func (m grpcMesh) why(pod, method string, status int, pods string, headers ...string) {
	m.t.Helper()
	args := []string{"why", pod + ".a", "greeter.a:7070", "--path", method, "--method", "POST", "--address", m.Pilot.Monitoring, "-o", "json"}
	for i := 0; i < len(headers); i += 2 {
		args = append(args, "--header", headers[i]+"="+headers[i+1])
	}
	cmd := exec.CommandContext(m.t.Context(), os.Getenv(suite.PilotVar), args...)
	var said strings.Builder
	cmd.Stderr = &said
	text, _ := cmd.Output() // exit code 79 means that the call fails
	var way struct {
		Status   int
		Reason   string
		Depends  []string
		Arrivals []struct {
			Pod    string
			Others []string
		}
	}
	if err := json.Unmarshal(text, &way); err != nil {
		m.t.Fatalf("%v: %s%s", err, text, said.String())
	}
	var names []string
	for _, a := range way.Arrivals {
		for _, pod := range append(a.Others, a.Pod) {
			names = append(names, strings.TrimSuffix(pod, ".a"))
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, ","); way.Status != status || got != pods || len(way.Depends) > 0 {
		m.t.Errorf("why says %d (%s) by %q, want %d by %q: %s", way.Status, way.Reason, got, status, pods, text)
	}
}
