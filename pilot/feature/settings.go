package feature

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Keepalive returns the settings for probing idle TCP connections.
func Keepalive(k *networkingv1alpha3.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *corev3.TcpKeepalive {
	out := &corev3.TcpKeepalive{}
	if k.Probes > 0 {
		out.KeepaliveProbes = envoy.UInt32(k.Probes)
	}
	if k.Time != nil {
		out.KeepaliveTime = envoy.UInt32(uint32(k.Time.Seconds))
	}
	if k.Interval != nil {
		out.KeepaliveInterval = envoy.UInt32(uint32(k.Interval.Seconds))
	}
	return out
}

// Retries returns a retry policy. Unset fields have the default: two more attempts on other hosts, if the upstream
// cannot have processed the request. With 0 attempts it is nil, no retries.
func Retries(r *networkingv1alpha3.HTTPRetry) *routev3.RetryPolicy {
	p := &routev3.RetryPolicy{
		RetryOn:                       "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries:                    envoy.UInt32(2),
		HostSelectionRetryMaxAttempts: 5,
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: envoy.Any(&previoushostsv3.PreviousHostsPredicate{})},
		}},
	}
	switch {
	case r == nil:
		return p
	case r.Attempts <= 0:
		return nil
	}
	p.NumRetries = envoy.UInt32(uint32(r.Attempts))
	if r.RetryOn != "" {
		p.RetryOn, p.RetriableStatusCodes = retryOn(r.RetryOn)
	}
	if r.PerTryTimeout != nil {
		p.PerTryTimeout = r.PerTryTimeout
	}
	if r.Backoff != nil {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: r.Backoff}
	}
	if r.RetryIgnorePreviousHosts != nil && !r.RetryIgnorePreviousHosts.Value {
		p.RetryHostPredicate = nil
	}
	if r.RetryRemoteLocalities.GetValue() {
		p.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: envoy.Any(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2}),
			},
		}
	}
	return p
}

// InboundRetries returns the retry policy of requests that a sidecar passes on to its workload. Unset fields have the
// default: two more attempts, if the request was reset before the workload got it. With 0 attempts it is nil, no
// retries. The workload is the only host, so settings of other hosts do not apply, nor does the time for an attempt.
func InboundRetries(r *networkingv1alpha3.HTTPRetry) *routev3.RetryPolicy {
	p := &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: envoy.UInt32(2)}
	switch {
	case r == nil:
		return p
	case r.Attempts <= 0:
		return nil
	}
	p.NumRetries = envoy.UInt32(uint32(r.Attempts))
	if r.RetryOn != "" {
		p.RetryOn, p.RetriableStatusCodes = retryOn(r.RetryOn)
	}
	if r.Backoff != nil {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: r.Backoff}
	}
	return p
}

// retryOn separates conditions from status codes, for which Envoy has separate fields.
func retryOn(s string) (string, []uint32) {
	const byCode = "retriable-status-codes"
	var conditions []string
	var codes []uint32
	for c := range strings.SplitSeq(s, ",") {
		c = strings.TrimSpace(c)
		if n, err := strconv.ParseUint(c, 10, 32); err == nil {
			codes = append(codes, uint32(n))
		} else if c != "" && !slices.Contains(conditions, c) {
			conditions = append(conditions, c)
		}
	}
	if len(codes) > 0 && !slices.Contains(conditions, byCode) {
		conditions = append(conditions, byCode)
	}
	return strings.Join(conditions, ","), codes
}
