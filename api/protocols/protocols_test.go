package protocols

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOfPort(t *testing.T) {
	app := func(s string) *string { return &s }
	for _, c := range []struct {
		port corev1.ServicePort
		want Protocol
	}{
		{corev1.ServicePort{Name: "http"}, HTTP},
		{corev1.ServicePort{Name: "HTTP2-main"}, HTTP2},
		{corev1.ServicePort{Name: "https-x"}, HTTPS},
		{corev1.ServicePort{Name: "httpx"}, Unsupported},
		{corev1.ServicePort{Name: "grpc"}, GRPC},
		{corev1.ServicePort{Name: "grpc-web"}, GRPCWeb},
		{corev1.ServicePort{Name: "grpc-web-x"}, GRPCWeb},
		{corev1.ServicePort{Name: "grpc-x"}, GRPC},
		{corev1.ServicePort{Name: "tls"}, TLS},
		{corev1.ServicePort{Name: "tcp-db"}, TCP},
		{corev1.ServicePort{Name: "mongo-a"}, Mongo},
		{corev1.ServicePort{Name: "mysql"}, MySQL},
		{corev1.ServicePort{Name: "redis"}, Redis},
		{corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolUDP, AppProtocol: app("http")}, UDP},
		{corev1.ServicePort{Name: "udp"}, UDP},
		{corev1.ServicePort{Name: "tcp", AppProtocol: app("kubernetes.io/h2c")}, HTTP2},
		{corev1.ServicePort{Name: "tcp", AppProtocol: app("kubernetes.io/ws")}, HTTP},
		{corev1.ServicePort{Name: "tcp", AppProtocol: app("kubernetes.io/wss")}, HTTPS},
		{corev1.ServicePort{Name: "tcp", AppProtocol: app("GRPC")}, GRPC},
		{corev1.ServicePort{Name: "http", AppProtocol: app("example.com/own")}, Unsupported},
		{corev1.ServicePort{Port: 25}, TCP},
		{corev1.ServicePort{Port: 53}, TCP},
		{corev1.ServicePort{Port: 3306, Name: "db"}, TCP},
		{corev1.ServicePort{Port: 3306, Name: "http"}, HTTP},
		{corev1.ServicePort{Port: 27017}, TCP},
		{corev1.ServicePort{Port: 80}, Unsupported},
		{corev1.ServicePort{Name: "hbone-x"}, Unsupported},
		{corev1.ServicePort{Name: "http", AppProtocol: app("h2c")}, Unsupported},
	} {
		if got := OfPort(&c.port); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.port, got, c.want)
		}
	}
}
