package destinationrule

import (
	"cmp"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typematcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// Policy implements feature.Destination.
func (policies) Policy(p traffic.Policy, t feature.PolicyTarget, c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions) {
	if pool := p.ConnectionPool; pool != nil {
		applyTCP(c, options, pool.Tcp)
		applyHTTP(c, options, pool.Http, t)
		if idle := pool.Tcp.GetIdleTimeout(); idle != nil && pool.Http.GetIdleTimeout() == nil {
			common(options).IdleTimeout = idle
		}
	}
	if p.RetryBudget != nil {
		c.CircuitBreakers.Thresholds[0].RetryBudget = retryBudget(p.RetryBudget)
	}
	if t.Inbound {
		return
	}
	if p.LoadBalancer != nil && c.GetType() != clusterv3.Cluster_ORIGINAL_DST {
		applyLoadBalancer(c, p.LoadBalancer)
	}
	if p.OutlierDetection != nil {
		applyOutlierDetection(c, options, p.OutlierDetection)
	}
	applyChoice(c, t.Choice)
}

// retryBudget returns the limit of active retries: by default a fifth of the active requests, and at least three.
func retryBudget(b *networkingv1alpha3.TrafficPolicy_RetryBudget) *clusterv3.CircuitBreakers_Thresholds_RetryBudget {
	percent, least := 20.0, uint32(3)
	if b.Percent != nil {
		percent = b.Percent.Value
	}
	if b.MinRetryConcurrency > 0 {
		least = b.MinRetryConcurrency
	}
	return &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent: &typev3.Percent{Value: percent}, BudgetInterval: b.BudgetInterval, MinRetryConcurrency: envoy.UInt32(least),
	}
}

func applyTCP(c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions, tcp *networkingv1alpha3.ConnectionPoolSettings_TCPSettings) {
	if tcp == nil {
		return
	}
	limits := c.CircuitBreakers.Thresholds[0]
	if tcp.MaxConnections > 0 {
		limits.MaxConnections = envoy.UInt32(uint32(tcp.MaxConnections))
	}
	if tcp.ConnectTimeout != nil {
		c.ConnectTimeout = tcp.ConnectTimeout
	}
	if tcp.MaxConnectionDuration != nil {
		common(options).MaxConnectionDuration = tcp.MaxConnectionDuration
	}
	if tcp.TcpKeepalive != nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: feature.Keepalive(tcp.TcpKeepalive)}
	}
}

func applyHTTP(c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions,
	http *networkingv1alpha3.ConnectionPoolSettings_HTTPSettings, t feature.PolicyTarget) {
	if http == nil {
		return
	}
	limits := c.CircuitBreakers.Thresholds[0]
	if http.Http1MaxPendingRequests > 0 {
		limits.MaxPendingRequests = envoy.UInt32(uint32(http.Http1MaxPendingRequests))
	}
	if http.Http2MaxRequests > 0 {
		limits.MaxRequests = envoy.UInt32(uint32(http.Http2MaxRequests))
	}
	if http.MaxRetries > 0 {
		limits.MaxRetries = envoy.UInt32(uint32(http.MaxRetries))
	}
	if http.IdleTimeout != nil {
		common(options).IdleTimeout = http.IdleTimeout
	}
	if http.MaxRequestsPerConnection > 0 {
		common(options).MaxRequestsPerConnection = envoy.UInt32(uint32(http.MaxRequestsPerConnection))
	}
	if http.H2UpgradePolicy == networkingv1alpha3.ConnectionPoolSettings_HTTPSettings_UPGRADE && !t.Inbound && !t.Sniffed {
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP2()
	}
	if http.MaxConcurrentStreams > 0 || http.Http2KeepAlive != nil {
		common(options)
	}
	if http.UseClientProtocol {
		options.UpstreamProtocolOptions = envoy.DownstreamProtocol()
	}
	for _, h2 := range []*corev3.Http2ProtocolOptions{
		options.GetExplicitHttpConfig().GetHttp2ProtocolOptions(), options.GetUseDownstreamProtocolConfig().GetHttp2ProtocolOptions(),
	} {
		if h2 == nil {
			continue
		}
		if n := http.MaxConcurrentStreams; n > 0 {
			h2.MaxConcurrentStreams = envoy.UInt32(uint32(n))
		}
		if k := http.Http2KeepAlive; k != nil {
			h2.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: k.Interval, Timeout: k.Timeout}
		}
	}
}

func common(o *httpv3.HttpProtocolOptions) *corev3.HttpProtocolOptions {
	if o.CommonHttpProtocolOptions == nil {
		o.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	return o.CommonHttpProtocolOptions
}

const defaultRingSize = 1024

func applyLoadBalancer(c *clusterv3.Cluster, lb *networkingv1alpha3.LoadBalancerSettings) {
	slow := slowStart(lb)
	if u := lb.GetBackendUtilization(); u != nil {
		if !callsAnyHost(c) {
			c.LoadBalancingPolicy = byUtilization(u, slow)
		}
		return
	}
	if hash := lb.GetConsistentHash(); hash != nil {
		switch a := hash.HashAlgorithm.(type) {
		case *networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_Maglev:
			c.LbPolicy = clusterv3.Cluster_MAGLEV
			if a.Maglev.TableSize > 0 {
				c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
					MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(a.Maglev.TableSize)},
				}
			}
		default:
			size := max(hash.GetRingHash().GetMinimumRingSize(), hash.GetMinimumRingSize()) //nolint:staticcheck // users still set the older field
			size = cmp.Or(size, defaultRingSize)
			c.LbPolicy = clusterv3.Cluster_RING_HASH
			c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
				RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(size)},
			}
		}
		return
	}
	switch lb.GetSimple() {
	case networkingv1alpha3.LoadBalancerSettings_ROUND_ROBIN:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
		}
	case networkingv1alpha3.LoadBalancerSettings_RANDOM:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	default:
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow},
			}
		}
	}
}

// slowStart returns the settings for gradually increasing the share of requests of a new endpoint, or nil.
func slowStart(lb *networkingv1alpha3.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	switch {
	case lb.GetWarmup() != nil:
		w := lb.Warmup
		s := &clusterv3.Cluster_SlowStartConfig{
			SlowStartWindow: w.Duration,
			// the key must not be empty; no runtime layer defines this one
			Aggression:       &corev3.RuntimeDouble{DefaultValue: 1, RuntimeKey: "("},
			MinWeightPercent: &typev3.Percent{Value: 10},
		}
		if w.Aggression != nil {
			s.Aggression.DefaultValue = w.Aggression.Value
		}
		if w.MinimumPercent != nil {
			s.MinWeightPercent.Value = w.MinimumPercent.Value
		}
		return s
	case lb.GetWarmupDurationSecs() != nil:
		return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: lb.WarmupDurationSecs} //nolint:staticcheck
	}
	return nil
}

func applyOutlierDetection(c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions, o *networkingv1alpha3.OutlierDetection) {
	d := &clusterv3.OutlierDetection{
		Interval:             o.Interval,
		BaseEjectionTime:     o.BaseEjectionTime,
		EnforcingSuccessRate: envoy.UInt32(0), // Istio has no such setting, and Envoy's default would eject endpoints
	}
	if o.MaxEjectionPercent > 0 {
		d.MaxEjectionPercent = envoy.UInt32(uint32(o.MaxEjectionPercent))
	}
	if n := o.Consecutive_5XxErrors; n != nil {
		d.Consecutive_5Xx, d.EnforcingConsecutive_5Xx = n, enforce(n)
	}
	if n := o.ConsecutiveGatewayErrors; n != nil {
		d.ConsecutiveGatewayFailure, d.EnforcingConsecutiveGatewayFailure = n, enforce(n)
	}
	if n := o.FailurePercentageThreshold; n != nil { // Envoy's default enforces none
		d.FailurePercentageThreshold, d.EnforcingFailurePercentage = n, enforce(n)
	}
	if o.SplitExternalLocalOriginErrors {
		d.SplitExternalLocalOriginErrors = true
		if n := o.ConsecutiveLocalOriginFailures; n != nil {
			d.ConsecutiveLocalOriginFailure, d.EnforcingConsecutiveLocalOriginFailure = n, enforce(n)
		}
		d.EnforcingLocalOriginSuccessRate = envoy.UInt32(0)
	}
	if codes := o.OutlierDetectionHttpErrorCodes; len(codes) > 0 {
		options.OutlierDetection = &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: anyStatus(codes)}
	}
	c.OutlierDetection = d
	if c.CommonLbConfig == nil {
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	}
	c.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: float64(o.MinHealthPercent)}
}

// anyStatus matches responses with one of some status codes.
func anyStatus(codes []uint32) *matcherv3.MatchPredicate {
	var all []*matcherv3.MatchPredicate
	for _, code := range codes {
		all = append(all, &matcherv3.MatchPredicate{
			Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{
				Headers: []*routev3.HeaderMatcher{{
					Name: ":status",
					HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &typematcherv3.StringMatcher{
						MatchPattern: &typematcherv3.StringMatcher_Exact{Exact: strconv.FormatUint(uint64(code), 10)},
					}},
				}},
			}},
		})
	}
	if len(all) == 1 {
		return all[0]
	}
	return &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_OrMatch{OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: all}}}
}

// enforce returns the enforcement percentage of a threshold: 100 if the threshold is above zero, else 0.
func enforce(threshold *wrapperspb.UInt32Value) *wrapperspb.UInt32Value {
	if threshold.Value > 0 {
		return envoy.UInt32(100)
	}
	return envoy.UInt32(0)
}
