package translate_test

// difference is where proxies are sent something else than the real istiod sent them, in one case of the reference.
type difference struct {
	in     string // the case
	where  string // what the leaves' paths begin with, as a regular expression: node/type/resource/…
	leaves int    // how many leaves differ
	reason string
}

// intended are the differences on purpose. docs/differences-from-istio.md has the ones that users notice.
var intended = []difference{
	{"06-service-entry", `[^/]+/rds/8000/virtualHosts\["static\.example\.com:8000"\]/domains\[`, 10,
		"all addresses of a service are domains, CIDRs are none"},
	{"10-authorization", `api-a/lds/virtualInbound/.*/uriTemplate/typedConfig/pathTemplate$`, 8,
		"the recording lost what is in a path template"},
	{"20-telemetry", `[^/]+/lds/.*/accessLog\[0\]/filter/.*/typedConfig/expression$`, 118,
		"the recording lost what is in a filter by expression"},
	{"32-patched-listener-filter-merge", `api-a/lds/virtualInbound/`, 1, "listener filters are merged into as other filters are"},
	{"40-patched-lists", `api-a/lds/.*/(serverName|upgradeType)$`, 8, "MERGE_AND_REPLACE_LIST has an effect on filters too"},
	{"42-destinations", `[^/]+/cds/outbound\|\d+\|\|ppoff\.test/transportSocket/typedConfig/transportSocket/name`, 12,
		"one name for sockets without TLS"},
	{"42-destinations", `[^/]+/cds/outbound\|96\|\|(ka|noup)\.test/.*/useDownstreamProtocolConfig/`, 25,
		"HTTP/2 options hold for ports of no protocol too"},
	{"42-destinations", `[^/]+/lds/(240\.1\.0\.2_90|0\.0\.0\.0_7000|127\.0\.0\.1_90)/.*/idleTimeout$`, 5,
		"timeouts of a port hold for its connections"},
	{"43-default-policy", `[^/]+/lds/.*/idleTimeout$`, 46, "the default timeout of connections holds for TCP too"},
	{"44-stat-names", `[^/]+/lds/.*/statPrefix$`, 71, "connections have the names of their clusters"},
	{"49-edge", `ingress/cds/.*/perConnectionBufferLimitBytes$`, 14, "the profile EDGE limits the buffers of clusters too"},
	{"54-names", `[^/]+/cds/outbound\|80\|(v\d\|rrsel|\|rrnone)\.test/`, 690,
		"a cluster whose name has no endpoint is sent without one, as others are"},
	{"55-mixed-precedence", `[^/]+/rds/80/.*/hashPolicy\[1\]/`, 10, "several destinations with one hash policy have it once"},
	{"56-mixed-entries", `web-b-none/lds/127\.0\.0\.1_443/`, 2,
		"the world of this recording has a service of the API server that is older than the others"},
	{"57-mixed-gateways", `ingress/rds/http\.8080/.*/redirect/pathRedirect$`, 1, "a redirect that keeps the path names none"},
	{"58-mixed-rules", `api-a/[ce]ds/`, 44, "a rule for other workloads does not hide the rules of wider patterns"},
	{"60-mixed-egress", `web-b-none/lds/127\.0\.0\.1_443/`, 2,
		"the world of this recording has a service of the API server that is older than the others"},
	{"64-mixed-selected", `[^/]+/cds/`, 24, "a rule for other workloads does not hide the rules of wider patterns and other namespaces"},
	{"65-empty-names", `[^/]+/cds/outbound\|\d+\|(v3\|sub|\|sel)\.test/`, 678,
		"a cluster whose name has no endpoint is sent without one, as others are"},
	{"69-mixed-patches", `web-b-none/lds/127\.0\.0\.1_443/`, 2,
		"the world of this recording has a service of the API server that is older than the others"},
	{"70-mixed-rivals", `[^/]+/(lds/240\.6\.0\.2_6000/|rds/8[01]/virtualHosts\["dup\.test:8[01]"\]/domains\["240\.6\.0\.1"\])`, 45,
		"entries of one host share their addresses and ports"},
	{"74-mixed-inbound", `[^/]+/cds/outbound\|6000\|\|api\.a\.svc\.cluster\.local/.*/useDownstreamProtocolConfig/`, 10,
		"HTTP/2 options hold for ports of no protocol too"},
	{"80-mixed-tcp", `[^/]+/lds/[^/]+_3306/.*/idleTimeout$`, 7, "timeouts of a subset hold for its connections"},
	{"80-mixed-tcp", `[^/]+/lds/[^/]+_8443/`, 40, "of two routes for a server name the first counts: Envoy refuses the listener with both"},
	{"81-mixed-sidecar-binds", `[^/]+/rds/unix:.*/domains\[`, 20, "ports are ignored in hosts"},
	{"82-mixed-hashes", `[^/]+/rds/80/.*/hashPolicy\[`, 30, "the hash of a subset's port holds for that port"},
	{"61-dynamic-entry", `[^/]+/(cds/outbound.*/clusterType|lds/.*/typedConfig/dnsCacheConfig)/`, 310,
		"all hosts that are called share one cache of addresses"},
	{"61-dynamic-entry", `[^/]+/lds/.*/httpFilters\[\d+\]/(name|typedConfig/[^/]+)$`, 80, "all requests may be for hosts that are resolved"},
	{"62-allow-any-dynamic", `[^/]+/(cds/AllowAnyDynamicDNSCluster/clusterType|lds/.*/typedConfig/dnsCacheConfig)/`, 145,
		"all hosts that are called share one cache of addresses"},
	{"83-http3", `ingress/lds/udp_0\.0\.0\.0_(8443/.*mutual\.example\.com|8445/|8453/)`, 297,
		"what demands a client certificate, or bounds TLS to 1.2, has no HTTP/3"},
	{"83-http3", `ingress/rds/https\.(443\.https-m|445\.https-445|453\.https-453)\.gw\..*/responseHeadersToAdd`, 28,
		"what has no HTTP/3 does not offer it"},
	{"83-http3", `web-b-none/lds/127\.0\.0\.1_443/`, 2,
		"the world of this recording has a service of the API server that is older than the others"},
	{"85-http3-gatewayapi", `ingress/rds/https\.445\..*/redirect/portRedirect$`, 1,
		"a redirect to the host of the request keeps the port that the client wrote with it"},
	{"84-http3-features", `web-b-none/lds/127\.0\.0\.1_443/`, 2,
		"the world of this recording has a service of the API server that is older than the others"},
	{"84-http3-features", `ingress/cds/.*/perConnectionBufferLimitBytes$`, 13, "the profile EDGE limits the buffers of clusters too"},
}

// pending is what is not served yet. What serves some of it lowers the numbers here, or deletes the entry.
var pending = []difference{
	{"04-traffic-policy", `api-a/lds/virtualInbound/.*/maxDownstreamConnectionDuration$`, 9,
		"maxConnectionDuration limits inbound connections here, but not in istiod"},
}
