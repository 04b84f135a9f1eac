package bootstrap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// tags returns the name and the regular expression of each label that Envoy extracts from the names of its metrics,
// as Istio's dashboards expect them. The first group of an expression is removed from the name. The second is the
// label's value.
func tags() [][2]string {
	const address = `(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`
	return [][2]string{
		{"cluster_name", `^cluster(\.(.+);)`},
		{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)`},
		{"thread_name", `^server(\.(.+))\.watchdog`},
		{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
		{"response_code", `_rq(_(\d{3}))$`},
		{"response_code_class", `_rq(_(\dxx))$`},
		{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.` + address},
		{"listener_address", `^listener\.` + address},
		{"mongo_prefix", `^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$`},
		{"cache", `(cache\.(.+?)\.)`},
		{"component", `(component\.(.+?)\.)`},
		{"tag", `(tag\.(.+?);\.)`},
		{"wasm_filter", `(wasm_filter\.(.+?)\.)`},
		{"authz_enforce_result", `rbac(\.(allowed|denied))`},
		{"authz_dry_run_action", `(\.istio_dry_run_(allow|deny)_)`},
		{"authz_dry_run_result", `(\.shadow_(allowed|denied))`},
	}
}

// list splits the value of an annotation at commas.
func list(text string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool { return r == ',' }),
		func(s string) bool { return strings.TrimSpace(s) == "" })
}

// stats returns which metrics Envoy keeps, and their labels: those of every mesh, and those in ProxyConfig or in the
// pod's annotations.
func (a *Agent) stats(n *corev3.Node) (*metricsv3.StatsConfig, error) {
	c := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	var extra [][2]string
	for _, name := range slices.Concat(a.Proxy.GetExtraStatTags(), list(a.Annotations[names.AnnotationExtraStatTags])) {
		if name = strings.TrimSpace(name); !slices.ContainsFunc(extra, func(t [2]string) bool { return t[0] == name }) {
			extra = append(extra, [2]string{name, "(" + name + `=\.=(.*?);\.;)`})
		}
	}
	for _, t := range slices.Concat(extra, tags()) {
		c.StatsTags = append(c.StatsTags, &metricsv3.TagSpecifier{TagName: t[0], TagValue: &metricsv3.TagSpecifier_Regex{Regex: t[1]}})
	}
	var patterns []*matcherv3.StringMatcher
	prefix := func(list ...string) {
		for _, s := range list {
			patterns = append(patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}})
		}
	}
	suffix := func(list ...string) {
		for _, s := range list {
			patterns = append(patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: s}})
		}
	}
	regex := func(list ...string) {
		for _, s := range list {
			pattern := &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}}
			patterns = append(patterns, &matcherv3.StringMatcher{MatchPattern: pattern})
		}
	}
	prefix("reporter=", "cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm")
	suffix("rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied")
	regex(`vhost\..*\.route\..*`)
	prefix("component", "istio")
	if a.CountConnections {
		suffix("downstream_cx_active")
	}
	matcher := a.Proxy.GetProxyStatsMatcher()
	annotationOr := func(annotation string, fallback []string) []string {
		if text, ok := a.Annotations[annotation]; ok {
			fallback = list(text)
		}
		return withAddresses(fallback, n)
	}
	prefix(annotationOr(names.AnnotationStatsInclusionPrefixes, matcher.GetInclusionPrefixes())...)
	suffix(annotationOr(names.AnnotationStatsInclusionSuffixes, matcher.GetInclusionSuffixes())...)
	regex(annotationOr(names.AnnotationStatsInclusionRegexps, matcher.GetInclusionRegexps())...)
	inclusion := &metricsv3.StatsMatcher_InclusionList{InclusionList: &matcherv3.ListStringMatcher{Patterns: patterns}}
	c.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: inclusion}
	var err error
	c.HistogramBucketSettings, err = a.buckets()
	return c, err
}

// withAddresses returns patterns for the names of metrics. A pattern with {pod_ip} becomes one for each address of the
// proxy.
func withAddresses(patterns []string, n *corev3.Node) (all []string) {
	const podIP = "{pod_ip}"
	for _, p := range patterns {
		if !strings.Contains(p, podIP) {
			all = append(all, p)
			continue
		}
		for ip := range strings.SplitSeq(n.GetMetadata().GetFields()["INSTANCE_IPS"].GetStringValue(), ",") {
			all = append(all, strings.ReplaceAll(p, podIP, ip))
		}
	}
	return all
}

// defaultFlush is the interval at which Envoy flushes metrics to sinks unless the pod's annotation sets another one.
const defaultFlush = 5 * time.Second

// statsIntervals sets how often Envoy flushes metrics to sinks, and how often it removes unused ones, as the pod's
// annotations say.
func (a *Agent) statsIntervals(b *bootstrapv3.Bootstrap) error {
	flush, err := a.interval(names.AnnotationStatsFlushInterval)
	if err != nil {
		return err
	}
	if flush > 0 {
		b.StatsFlushInterval = durationpb.New(flush)
	}
	eviction, err := a.interval(names.AnnotationStatsEvictionInterval)
	if err != nil || eviction == 0 {
		return err
	}
	if every := cmp.Or(flush, defaultFlush); eviction%every != 0 {
		return fmt.Errorf("annotation %s: %v: write a multiple of %v, the interval at which metrics are flushed",
			names.AnnotationStatsEvictionInterval, eviction, every)
	}
	b.StatsEviction = &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(eviction)}
	return nil
}

// Envoy takes flush intervals from minFlush to below maxFlush.
const (
	minFlush = time.Millisecond
	maxFlush = 5 * time.Minute
)

// interval returns the duration that an annotation of the pod holds, or 0 if there is none.
func (a *Agent) interval(annotation string) (time.Duration, error) {
	text := a.Annotations[annotation]
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minFlush || annotation == names.AnnotationStatsFlushInterval && d >= maxFlush {
		return 0, fmt.Errorf("annotation %s: %q: write a duration such as 10s", annotation, text)
	}
	return d, nil
}

// buckets returns the buckets of histograms by the prefix of their names, from the pod's annotation.
func (a *Agent) buckets() ([]*metricsv3.HistogramBucketSettings, error) {
	const annotation = names.AnnotationStatsHistogramBuckets
	text := a.Annotations[annotation]
	if text == "" {
		return nil, nil
	}
	byPrefix := map[string][]float64{}
	if err := json.Unmarshal([]byte(text), &byPrefix); err != nil {
		return nil, fmt.Errorf(`annotation %s: %w: write {"istiocustom":[1,5,10]}, where istiocustom is a prefix of names`, annotation, err)
	}
	var settings []*metricsv3.HistogramBucketSettings
	for _, prefix := range sorted(byPrefix) {
		settings = append(settings, &metricsv3.HistogramBucketSettings{
			Match:   &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}},
			Buckets: byPrefix[prefix],
		})
	}
	return settings, nil
}
