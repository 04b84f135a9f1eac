package feature_test

import (
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// TestInboundRetries: retries of requests to the workload itself have a default of their own, and 0 attempts disable
// them. Settings of other hosts do not apply.
func TestInboundRetries(t *testing.T) {
	second := durationpb.New(time.Second)
	for _, c := range []struct {
		of   *networkingv1alpha3.HTTPRetry
		want *routev3.RetryPolicy
	}{
		{nil, &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(2)}},
		{&networkingv1alpha3.HTTPRetry{}, nil},
		{&networkingv1alpha3.HTTPRetry{RetryOn: "5xx"}, nil},
		{&networkingv1alpha3.HTTPRetry{Attempts: 5}, &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(5)}},
		{&networkingv1alpha3.HTTPRetry{Attempts: 1, RetryOn: "reset,503", Backoff: second, PerTryTimeout: second,
			RetryRemoteLocalities: wrapperspb.Bool(true)},
			&routev3.RetryPolicy{RetryOn: "reset,retriable-status-codes", RetriableStatusCodes: []uint32{503}, NumRetries: wrapperspb.UInt32(1),
				RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: second}}},
	} {
		if got := feature.InboundRetries(c.of); !proto.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.of, got, c.want)
		}
	}
}
