package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// server serves until one of its ports fails.
func server(args []string) error {
	f := flags("server")
	ports := f.IntSlice("port", []int{8080}, "ports of HTTP")
	secure := f.IntSlice("tls", nil, "those of --port that are HTTPS")
	tcp := f.IntSlice("tcp", nil, "ports of TCP")
	rpc := f.IntSlice("grpc", nil, "ports of gRPC")
	status := f.Int("status", http.StatusOK, "of each answer over HTTP")
	f.String("crt", "", "not read: the certificate is made")
	f.String("key", "", "not read: the certificate is made")
	if err := f.Parse(args); err != nil {
		return err
	}
	failed := make(chan error)
	serve := func(port int, secure bool, serve func(net.Listener) error) error {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		if secure {
			cert, err := certificate()
			if err != nil {
				return err
			}
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
		}
		go func() { failed <- serve(l) }()
		return nil
	}
	for _, port := range *ports {
		h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { echo(w, r, port, *status) }),
			ReadHeaderTimeout: time.Minute}
		if err := serve(port, slices.Contains(*secure, port), h.Serve); err != nil {
			return err
		}
	}
	for _, port := range *tcp {
		if err := serve(port, false, func(l net.Listener) error { return serveTCP(l, port) }); err != nil {
			return err
		}
	}
	for _, port := range *rpc {
		s := grpc.NewServer()
		s.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: echoRPC(port)}}}, nil)
		if err := serve(port, false, s.Serve); err != nil {
			return err
		}
	}
	return <-failed
}

// who returns the name and the port of the server.
func who(port int) string {
	host, _ := os.Hostname()
	if name := os.Getenv("HOSTNAME"); name != "" {
		host = name
	}
	return fmt.Sprintf("ServiceVersion=\nServicePort=%d\nHostname=%s\n", port, host)
}

func echo(w http.ResponseWriter, r *http.Request, port, status int) {
	var out strings.Builder
	out.WriteString(who(port))
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	fmt.Fprintf(&out, "Host=%s\nURL=%s\nMethod=%s\nProto=%s\nIP=%s\n", r.Host, r.URL.RequestURI(), r.Method, r.Proto, ip)
	headers(&out, "RequestHeader", r.Header)
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, out.String())
}

// headers writes a line for each value.
func headers(out io.Writer, field string, h map[string][]string) {
	for _, name := range slices.Sorted(keys(h)) {
		for _, v := range h[name] {
			fmt.Fprintf(out, "%s=%s:%s\n", field, name, v)
		}
	}
}

func keys(h map[string][]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range h {
			if !yield(k) {
				return
			}
		}
	}
}

// serveTCP answers each connection once, depending on its first bytes.
func serveTCP(l net.Listener, port int) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			b := make([]byte, 4096)
			n, err := conn.Read(b)
			if err == nil {
				_, _ = fmt.Fprintf(conn, "%sProto=TCP\nStatusCode=200\nEcho=%s\n", who(port), b[:n])
			}
		}()
	}
}

// service is the gRPC service. Its only method, Echo, maps a StringValue to a StringValue.
const service = "proto.EchoTestService"

func echoRPC(port int) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.StringValue
		if err := decode(&in); err != nil {
			return nil, err
		}
		var out strings.Builder
		out.WriteString(who(port))
		md, _ := metadata.FromIncomingContext(ctx)
		host := strings.Join(md.Get(":authority"), ",")
		ip := ""
		if p, ok := peer.FromContext(ctx); ok {
			ip, _, _ = net.SplitHostPort(p.Addr.String())
		}
		fmt.Fprintf(&out, "Host=%s\nProto=GRPC\nIP=%s\nStatusCode=200\n", host, ip)
		headers(&out, "RequestHeader", md)
		return wrapperspb.String(out.String()), nil
	}
}

// certificate returns a self-signed certificate.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "echo"}, DNSNames: []string{"echo"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
