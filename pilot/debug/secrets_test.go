package debug

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSecretsAreShownNowhere sends a proxy a secret, which it rejects with the content as the reason, and looks for the
// content in every page, the log and the metrics.
func TestSecretsAreShownNowhere(t *testing.T) {
	const name = "kubernetes://cert"
	fake, log, metrics := xdstest.NewTranslator(), &lockedBuffer{}, prometheus.NewRegistry()
	peers := xdstest.NewPeers(t, []string{"spiffe://cluster.local/ns/a/sa/web"})
	server := xds.New(xds.Options{
		Translator: fake, Metrics: metrics, Authenticate: peers.Authenticate,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	server.Publish(fake.Publish(true, "cds a=1", "sds "+name+"=1", "sds other=1"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	g := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec()), grpc.Creds(peers.Server()))
	server.Register(g)
	safe.Go(slog.Default(), "grpc", func() { _ = g.Serve(listener) })
	t.Cleanup(func() { server.Shutdown(); g.Stop() })
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(peers.Client(0)))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(t.Context())
	must.Succeed(t, err)
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		must.Succeed(t, stream.Send(r))
	}
	send(&discoveryv3.DeltaDiscoveryRequest{
		Node: xdstest.Node("web-1.a"), TypeUrl: envoy.SecretType, ResourceNamesSubscribe: []string{name, "other"},
	})
	m, err := stream.Recv()
	must.Succeed(t, err)
	if len(m.Resources) != 1 || !strings.Contains(string(m.Resources[0].Resource.Value), xdstest.Canary) {
		t.Fatalf("the proxy is sent %v", m)
	}
	send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: envoy.SecretType, ResponseNonce: m.Nonce,
		ErrorDetail: &rpcstatus.Status{Code: 13, Message: string(m.Resources[0].Resource.Value)},
	})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType})
	if m, err := stream.Recv(); err != nil || m.TypeUrl != envoy.ClusterType { // so the rejection was taken
		t.Fatal(m, err)
	}

	a, _ := testAPI(t)
	a.o.Proxies = server
	shown := map[string]string{"the log": log.String()}
	for _, p := range a.pages {
		for _, more := range []string{"", "&include_eds", "&types=Secret", "&push=true"} {
			code, body := get(t, a, "/debug/"+p.name+"?proxyID=web-1.a&object=Secret/tls.a"+more, here)
			if code != http.StatusOK {
				t.Errorf("%s: %d %s", p.name, code, body)
			}
			shown[p.name+more] = body
		}
	}
	dump, ok := server.Dump("web-1.a", envoy.SecretType)
	if !ok || len(dump) != 1 || dump[0].Name != name || dump[0].Size() != 0 {
		t.Errorf("the dump is %v, %t", dump, ok)
	}
	families, err := metrics.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		shown["metrics"] += f.String()
	}
	for what, text := range shown {
		encoded := base64.StdEncoding.EncodeToString([]byte(xdstest.Canary))
		if strings.Contains(text, xdstest.Canary) || strings.Contains(text, encoded[:16]) {
			t.Errorf("%s shows what is in a secret: %s", what, text)
		}
	}
	for what, want := range map[string]string{
		"config_dump&types=Secret": `"` + name + `"`, "syncz": "it does not take a secret", "the log": "it does not take a secret",
		"metrics": "pilot_xds_denied_secrets",
	} {
		if !strings.Contains(shown[what], want) {
			t.Errorf("%s does not have %s: %s", what, want, shown[what])
		}
	}
}
