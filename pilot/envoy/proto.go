package envoy

import (
	"strings"
	"time"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// UInt32 wraps a number that may be absent.
func UInt32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }

// Bool wraps a truth value that may be absent.
func Bool(v bool) *wrapperspb.BoolValue { return wrapperspb.Bool(v) }

// Duration makes a duration.
func Duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// Empty is the configuration, all defaults, of an extension whose message this program does not link.
func Empty(typeURL string) *anypb.Any { return &anypb.Any{TypeUrl: typeURL} }

// Fields makes a struct value of Envoy metadata.
func Fields(m map[string]*structpb.Value) *structpb.Struct { return &structpb.Struct{Fields: m} }

// Address makes a TCP address, or a pipe of unix:///path.
func Address(address string, port uint32) *corev3.Address {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: SocketAddress(address, port)}}
}

// SocketAddress makes a TCP address.
func SocketAddress(address string, port uint32) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}
}

// Wildcard returns the address on which a proxy with that family takes connections to any address.
func Wildcard(ipv4 bool) string {
	if !ipv4 {
		return "::"
	}
	return "0.0.0.0"
}

// Loopback returns the loopback address of a proxy with that family.
func Loopback(ipv4 bool) string {
	if !ipv4 {
		return "::1"
	}
	return "127.0.0.1"
}

// ADS is the stream that the resource came by. A listener waits for what it names there without a limit in time.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   Duration(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// AgentSecret names a secret that the agent beside the proxy serves, from the cluster sds-grpc.
func AgentSecret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: names.SDSCluster},
			}}},
		}},
		InitialFetchTimeout: Duration(0),
		ResourceApiVersion:  corev3.ApiVersion_V3,
	}}
}

// FileCertificate names a certificate that the agent beside the proxy serves from files of the proxy's own.
func FileCertificate(chain, key string) *tlsv3.SdsSecretConfig {
	return fileSecret("file-cert:" + chain + "~" + key)
}

// FileRoots names CA certificates that the agent beside the proxy serves from a file of the proxy's own, or from the
// system if the path is "system".
func FileRoots(path string) *tlsv3.SdsSecretConfig { return fileSecret("file-root:" + path) }

func fileSecret(name string) *tlsv3.SdsSecretConfig {
	s := AgentSecret(name)
	s.SdsConfig.InitialFetchTimeout = nil
	return s
}

// ServedSecret names a secret that the control plane serves over the stream by which the resource came. It must not
// hold up other resources, so it may come late.
func ServedSecret(name string) *tlsv3.SdsSecretConfig {
	s := &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ADS()}
	s.SdsConfig.InitialFetchTimeout = nil
	return s
}

// Credential names the certificate that a Gateway or a DestinationRule names.
func Credential(name string) *tlsv3.SdsSecretConfig { return credential(names.Credential(name)) }

// CACredential names the CA certificates that a Gateway or a DestinationRule names.
func CACredential(name string) *tlsv3.SdsSecretConfig { return credential(names.CACredential(name)) }

// NamedCACredential names the CA certificates that a Gateway names apart from its own certificate.
func NamedCACredential(name string) *tlsv3.SdsSecretConfig {
	return credential(names.NamedCACredential(name))
}

func credential(resource string, served bool) *tlsv3.SdsSecretConfig {
	if served {
		return ServedSecret(resource)
	}
	return AgentSecret(resource)
}

// TypedStruct is the configuration of an extension whose message this program does not link.
func TypedStruct(typeURL string, value map[string]any) *anypb.Any {
	s, err := structpb.NewStruct(value)
	if err != nil {
		panic("typed struct " + typeURL + ": " + err.Error()) // value is a literal of this program
	}
	return Any(&udpav1.TypedStruct{TypeUrl: "type.googleapis.com/" + typeURL, Value: s})
}

// ExplicitHTTP1 has requests go out as HTTP/1.1.
func ExplicitHTTP1() *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
	}}
}

// DownstreamProtocol has requests go out in the version of HTTP that they came in.
func DownstreamProtocol() *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig {
	return &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
		UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		},
	}
}

// ExplicitHTTP2 has a cluster speak HTTP/2, whatever its clients do.
func ExplicitHTTP2() *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
	}}
}

// Text makes a string value of Envoy metadata.
func Text(s string) *structpb.Value { return structpb.NewStringValue(s) }

// List makes a list value of Envoy metadata.
func List(v ...*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: v})
}

// IstioMetadata makes filter metadata under the key istio, nil of no fields.
func IstioMetadata(fields map[string]*structpb.Value) *corev3.Metadata {
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": Fields(fields)}}
}
