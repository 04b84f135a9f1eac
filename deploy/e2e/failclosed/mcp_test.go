package failclosed

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// configSource is an MCP server at one address with at most one object. A test can stop and restart it.
type configSource struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string

	mu      sync.Mutex
	url     string // of the type of the object; empty without an object
	object  *anypb.Any
	silent  string        // the URL of a type that gets no answer; optional
	version int           // grows with each change
	changed chan struct{} // closed at each change
	stop    func()        // nil if it does not run
}

// set replaces the object. Without a body, there is no object. The server then answers for all types again.
func (s *configSource) set(t *testing.T, k *kinds.Kind, name string, body *anypb.Any) {
	t.Helper()
	object, err := anypb.New(&mcpv1alpha1.Resource{Metadata: &mcpv1alpha1.Metadata{Name: name}, Body: body})
	must.Succeed(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url, s.object, s.silent = "", nil, ""
	if body != nil {
		s.url, s.object = k.APIVersion(k.Versions[0])+"/"+k.Name, object
	}
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// run starts the server if it does not run.
func (s *configSource) run(t *testing.T) {
	t.Helper()
	if s.stop != nil {
		return
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", s.address)
	must.Succeed(t, err)
	s.address = l.Addr().String()
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	s.stop = func() { server.Stop(); <-served; s.stop = nil }
}

// end stops the server if it runs.
func (s *configSource) end() {
	if s.stop != nil {
		s.stop()
	}
}

// StreamAggregatedResources answers each request for a type with all objects, and again after each change.
func (s *configSource) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	asked, sent := make(chan string), map[string]int{}
	go func() {
		defer close(asked)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			if r.GetResponseNonce() != "" {
				continue
			}
			select {
			case asked <- r.GetTypeUrl():
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		due, changed := s.due(sent)
		for _, r := range due {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		select {
		case url, ok := <-asked:
			if !ok {
				return nil
			}
			sent[url] = 0
		case <-changed:
		}
	}
}

// due returns the answers that a stream has not been sent, and a channel that is closed at the next change.
func (s *configSource) due(sent map[string]int) (list []*discoveryv3.DiscoveryResponse, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, version := range sent {
		if version == s.version || url == s.silent {
			continue
		}
		sent[url] = s.version
		r := &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: fmt.Sprint(s.version), Nonce: fmt.Sprint(url, s.version)}
		if url == s.url {
			r.Resources = []*anypb.Any{s.object}
		}
		list = append(list, r)
	}
	return list, s.changed
}

// parse reads an object of YAML.
func parse(t *testing.T, text string) (k *kinds.Kind, name string, body *anypb.Any) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
		Spec     json.RawMessage
	}
	must.Succeed(t, yaml.Unmarshal([]byte(text), &o))
	i := slices.IndexFunc(kinds.All(), func(k *kinds.Kind) bool { return k.Istio && k.Name == o.Kind })
	k = kinds.All()[i]
	spec := k.New().(proto.Message)
	must.Succeed(t, protojson.Unmarshal(o.Spec, spec))
	body, err := anypb.New(spec)
	must.Succeed(t, err)
	return k, o.Metadata.Namespace + "/" + o.Metadata.Name, body
}

// sourceRows are a config source and an object in it. s is the source, or nil for the document.
func sourceRows(s *configSource) []row {
	k := kinds.AuthorizationPolicy
	broken := func(name string) func(*testing.T, string) {
		return func(t *testing.T, _ string) {
			t.Helper()
			_, _, body := parse(t, policy)
			body.Value = []byte("\xff")
			s.set(t, k, name, body)
		}
	}
	return []row{{
		input: "an object of a config source (MCP)", good: policy, errors: []fault{
			{
				name: "a wrong value", said: "ipBlocks", start: closed, running: kept,
				content: object(security, "AuthorizationPolicy", `{rules: [{from: [{source: {ipBlocks: ["10.0.0.0/99"]}}]}]}`),
			},
			{name: "a body that cannot be decoded", spoil: broken("a/input"), said: "a/input", start: closed, running: both},
			{name: "no namespace", spoil: broken("input"), said: "not namespace/name", start: refused, running: kept},
		},
	}, {
		input: "a config source (MCP)", good: policy, errors: []fault{
			{
				name: "unreachable", spoil: func(*testing.T, string) { s.end() }, said: "the server cannot be read", start: refused, running: kept,
			},
			{
				name: "no answer for a kind", said: "configuration of xds://", silent: true, start: refused, running: kept,
				spoil: func(t *testing.T, _ string) {
					t.Helper()
					s.mu.Lock()
					s.silent = s.url
					s.mu.Unlock()
					s.end()
					s.run(t)
				},
			},
		},
	}}
}

// TestConfigSource breaks another control plane that is a source of configuration.
func TestConfigSource(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := &configSource{address: "127.0.0.1:0", changed: make(chan struct{})}
	s.run(t)
	t.Cleanup(s.end)
	g.put = func(t *testing.T, _ row, text string) {
		t.Helper()
		k, name, body := parse(t, text)
		s.set(t, k, name, body)
		s.run(t)
	}
	g.remove = func(t *testing.T, _ row) { t.Helper(); s.set(t, nil, "", nil) }
	rows := sourceRows(s)
	for i := range rows {
		rows[i].world = meshConfigMap("configSources: [{address: 'xds://" + s.address + "'}]\n")
	}
	g.runAll(t, rows)
}
