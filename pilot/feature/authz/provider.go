package authz

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	tcpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// defaultTimeout is the default time limit for a request to an authorizer.
const defaultTimeout = 600 * time.Second

func timeout(d *durationpb.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(defaultTimeout)
	}
	return d
}

// askHTTP returns the filter that asks an authorizer about requests.
func askHTTP(p *feature.ExtensionProvider, c node.Capabilities) *httpauthzv3.ExtAuthz {
	if g := p.Config.GetEnvoyExtAuthzGrpc(); g != nil {
		return &httpauthzv3.ExtAuthz{
			Services:              &httpauthzv3.ExtAuthz_GrpcService{GrpcService: grpcService(p, g)},
			FailureModeAllow:      g.FailOpen,
			ClearRouteCache:       g.ClearRouteCache,
			StatusOnError:         status(g.StatusOnError),
			WithRequestBody:       body(g.IncludeRequestBodyInCheck),
			TransportApiVersion:   corev3.ApiVersion_V3,
			FilterEnabledMetadata: enabled(httpRBAC, p.Name),
		}
	}
	h := p.Config.GetEnvoyExtAuthzHttp()
	service := &httpauthzv3.HttpService{
		PathPrefix: h.PathPrefix,
		ServerUri: &corev3.HttpUri{
			Uri: "http://" + p.Service.Host, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: p.Cluster(h.Port)}, Timeout: timeout(h.Timeout),
		},
	}
	//nolint:staticcheck // the deprecated field has the same effect
	allowed := patterns(slices.Concat(h.IncludeRequestHeadersInCheck, h.IncludeHeadersInCheck))
	var add []*corev3.HeaderValue
	for _, k := range slices.Sorted(maps.Keys(h.IncludeAdditionalHeadersInCheck)) {
		add = append(add, &corev3.HeaderValue{Key: k, Value: feature.Commands(c, h.IncludeAdditionalHeadersInCheck[k])})
	}
	if add != nil {
		service.AuthorizationRequest = &httpauthzv3.AuthorizationRequest{HeadersToAdd: add}
	}
	up, deny, allow := patterns(h.HeadersToUpstreamOnAllow), patterns(h.HeadersToDownstreamOnDeny), patterns(h.HeadersToDownstreamOnAllow)
	if up != nil || deny != nil || allow != nil {
		service.AuthorizationResponse = &httpauthzv3.AuthorizationResponse{AllowedUpstreamHeaders: up, AllowedClientHeaders: deny,
			AllowedClientHeadersOnSuccess: allow}
	}
	return &httpauthzv3.ExtAuthz{
		Services:              &httpauthzv3.ExtAuthz_HttpService{HttpService: service},
		FailureModeAllow:      h.FailOpen,
		ClearRouteCache:       h.ClearRouteCache,
		StatusOnError:         status(h.StatusOnError),
		WithRequestBody:       body(h.IncludeRequestBodyInCheck),
		AllowedHeaders:        allowed,
		TransportApiVersion:   corev3.ApiVersion_V3,
		FilterEnabledMetadata: enabled(httpRBAC, p.Name),
	}
}

// askTCP returns the filter that asks an authorizer about connections.
func askTCP(p *feature.ExtensionProvider) *tcpauthzv3.ExtAuthz {
	g := p.Config.GetEnvoyExtAuthzGrpc()
	return &tcpauthzv3.ExtAuthz{
		StatPrefix:            tcpStats,
		GrpcService:           grpcService(p, g),
		FailureModeAllow:      g.FailOpen,
		TransportApiVersion:   corev3.ApiVersion_V3,
		FilterEnabledMetadata: enabled(networkRBAC, p.Name),
	}
}

func grpcService(p *feature.ExtensionProvider,
	g *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: p.Cluster(g.Port),
			Authority: p.Service.Host}},
		Timeout: timeout(g.Timeout),
	}
}

// enabled matches requests that match a rule of the policies' filter.
func enabled(filter, provider string) *matcherv3.MetadataMatcher {
	prefix := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: customPrefix + "-" + provider}}
	return metadataMatcher(filter, textValue(prefix), customResult)
}

// status returns a status by its number, or nil for none.
func status(s string) *typev3.HttpStatus {
	if s == "" {
		return nil
	}
	n, _ := strconv.ParseUint(s, 10, 16)
	return &typev3.HttpStatus{Code: typev3.StatusCode(n)} //nolint:gosec // parsed with 16 bits
}

func body(b *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) *httpauthzv3.BufferSettings {
	if b == nil {
		return nil
	}
	return &httpauthzv3.BufferSettings{MaxRequestBytes: cmp.Or(b.MaxRequestBytes, 1), AllowPartialMessage: b.AllowPartialMessage,
		PackAsBytes: b.PackAsBytes}
}

// patterns returns the matcher of headers, or nil if none is named.
func patterns(values []string) *matcherv3.ListStringMatcher {
	if len(values) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, v := range values {
		m := parsePattern(v).matcher(true)
		out.Patterns = append(out.Patterns, m)
	}
	return out
}
