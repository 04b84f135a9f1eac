package bootstrap

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestNothingIsWatchedWithoutGateways: classes are created from the beginning, and objects of Gateways are watched once
// there is a Gateway of a class that is deployed.
func TestNothingIsWatchedWithoutGateways(t *testing.T) {
	api, watched := &apiserver.Server{}, atomic.Bool{}
	api.Intercept = func(r *http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/deployments") {
			watched.Store(true)
		}
		return nil
	}
	o := testOptions(t)
	o.Client, o.PodName, o.NoElection = api.Config(), "istiod-0", true
	s, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.gateways.Run(ctx) }()
	commit := func(class string) {
		key := kinds.Key{Kind: kinds.KubeGateway, Namespace: "edge", Name: class}
		spec := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class)}}
		s.commit([]kinds.Change{{Key: key, Object: &kinds.Object{Key: key, UID: "1", Spec: spec}}}, time.Now())
	}
	commit("other")
	eventually(t, "a class", func() bool { return api.Object("/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio") != nil })
	if watched.Load() {
		t.Error("Deployments are watched without a Gateway")
	}
	commit("istio")
	eventually(t, "Deployments are watched", watched.Load)
	cancel()
	must.Succeed(t, <-ended)
}
