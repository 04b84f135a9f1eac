package traffic

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

// The ports of the authorizer's pod.
const (
	authzGRPCPort = 9000
	authzHTTPPort = 8000
)

// pass is the header with which the authorizers allow a request, and passed its required value. They allow connections
// of one account.
const (
	pass    = "x-pass"
	passed  = "please"
	account = "/ns/a/sa/client"
)

// authorizer decides for policies of action CUSTOM.
type authorizer struct {
	authv3.UnimplementedAuthorizationServer

	mu    sync.Mutex
	asked map[string]int // number of requests, by protocol
}

// startAuthorizer starts the authorizers in a pod.
func startAuthorizer(t *testing.T, pod *world.Running) *authorizer {
	t.Helper()
	a := &authorizer{asked: map[string]int{}}
	rpc, web := grpc.NewServer(), &http.Server{Handler: http.HandlerFunc(a.check)} //nolint:gosec // no stranger reaches it
	authv3.RegisterAuthorizationServer(rpc, a)
	suite.Serve(t, pod, authzGRPCPort, rpc.Serve, rpc.Stop)
	suite.Serve(t, pod, authzHTTPPort, web.Serve, func() { _ = web.Close() })
	return a
}

func (a *authorizer) count(protocol string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[protocol]++
}

// times returns the number of requests by a protocol.
func (a *authorizer) times(protocol string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[protocol]
}

// Check implements authv3.AuthorizationServer.
func (a *authorizer) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	h := r.GetAttributes().GetRequest().GetHttp()
	if h == nil || h.GetMethod() == "" {
		a.count("tcp")
		if strings.HasSuffix(r.GetAttributes().GetSource().GetPrincipal(), account) {
			return &authv3.CheckResponse{Status: &rpcstatus.Status{}}, nil
		}
		return &authv3.CheckResponse{Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)}}, nil
	}
	a.count("grpc")
	if h.GetHeaders()[pass] != passed {
		return &authv3.CheckResponse{
			Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_Unauthorized},
			}},
		}, nil
	}
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			ResponseHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-authorizer", Value: "grpc"}}},
		}},
	}, nil
}

// check decides over HTTP, below /check. It reads the header that must be forwarded.
func (a *authorizer) check(w http.ResponseWriter, r *http.Request) {
	a.count("http")
	w.Header().Set("x-authorizer", "http")
	if strings.HasPrefix(r.URL.Path, "/body/") {
		checkBody(w, r)
		return
	}
	switch {
	case !strings.HasPrefix(r.URL.Path, "/check/"), r.Header.Get("x-mesh") != "test":
		w.WriteHeader(http.StatusTeapot)
	case r.Header.Get(pass) != passed:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// checkBody allows requests whose body begins with ten digits. Its answer has more headers than providers may forward.
func checkBody(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	for _, name := range []string{"x-user", "x-why", "x-hidden"} {
		w.Header().Set(name, "told")
	}
	if err != nil || string(body) != "0123456789" {
		w.WriteHeader(http.StatusPaymentRequired)
	}
}
