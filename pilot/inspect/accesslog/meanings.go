package accesslog

import (
	"slices"
	"strings"
)

// Cause is why a request was answered as it was.
type Cause string

// Values of Cause.
const (
	Unknown     Cause = ""
	NoRoute     Cause = "no route"
	NoChain     Cause = "no filter chain"
	NoListener  Cause = "no listener" // no line is of it
	NoCluster   Cause = "no cluster"
	NoEndpoint  Cause = "no endpoint"
	Connect     Cause = "connection"      // the connection to the endpoint failed
	TLS         Cause = "TLS"             // TLS of that connection failed
	Broken      Cause = "broken"          // the connection or the request ended before the response was complete
	Timeout     Cause = "timeout"         // a time limit ended
	Overflow    Cause = "overflow"        // a limit of connections or requests
	Policy      Cause = "policy"          // an AuthorizationPolicy
	Token       Cause = "token"           // a RequestAuthentication
	Authorizer  Cause = "authorizer"      // an external authorizer
	RateLimit   Cause = "rate limit"      // a rate limit
	Fault       Cause = "fault"           // a fault of a route
	Direct      Cause = "direct response" // a route that answers itself, or redirects
	Client      Cause = "client"          // the client, or its request
	Proxy       Cause = "proxy"           // the state of the proxy itself
	Application Cause = "application"     // what the proxy passed the request on to
)

// SaidOf reports whether a log may have the cause for something that another cause says more precisely, or for that
// cause itself.
func (c Cause) SaidOf(own Cause) bool {
	switch own {
	case NoChain:
		return c == NoChain || c == NoRoute
	case TLS:
		return c == TLS || c == Connect || c == Broken
	}
	return c == own
}

// Runtime reports whether the configuration does not decide the cause: it may be right, and the request fails anyway.
func (c Cause) Runtime() bool {
	return slices.Contains([]Cause{Connect, TLS, Broken, Timeout, Overflow, Client, Proxy, Application}, c)
}

// Meaning is what a response flag or a detail says.
type Meaning struct {
	Name  string `json:"name"`           // a flag, or a detail as it is in the text
	Long  string `json:"long,omitempty"` // long name of a flag
	Cause Cause  `json:"-"`
	Says  string `json:"says"` // what happened, and who answered
	Look  string `json:"look"` // what to look at
}

// flags returns the response flags of Envoy's documentation.
func flags() []Meaning {
	return []Meaning{
		{"UH", "NoHealthyUpstream", NoEndpoint,
			"The proxy answered with 503: the cluster has no endpoint that takes requests.",
			"Look at the Pods that the Service selects, their readiness, the subset's labels, and outlier detection."},
		{"UF", "UpstreamConnectionFailure", Connect,
			"The proxy answered with 503: its connection to the endpoint failed.",
			"Look at the transport failure reason: TLS means that both sides do not agree on mutual TLS. Otherwise the application does " +
				"not listen on the port, or a NetworkPolicy blocks it."},
		{"UO", "UpstreamOverflow", Overflow,
			"The proxy answered with 503: a limit of connections, requests or retries was reached.",
			"Look at connectionPool in the DestinationRules of the host, and at how many requests it gets."},
		{"NR", "NoRouteFound", NoRoute,
			"The proxy answered with 404, or closed the connection: no route or no filter chain is for the request.",
			"Look at the host and the path in the VirtualServices, the Gateway's hosts, and the server name of the client's TLS."},
		{"URX", "UpstreamRetryLimitExceeded", Unknown,
			"The proxy gave up after its last retry, or after its last attempt to connect.",
			"Look at the other flags for why each attempt failed, and at the retries of the route or maxConnectAttempts."},
		{"NC", "NoClusterFound", NoCluster,
			"The proxy answered with 503: the route names a cluster that the proxy does not have.",
			"Look at the destination of the VirtualService: its host, port and subset, and whether a Sidecar or exportTo hides it."},
		{"DT", "DurationTimeout", Timeout,
			"The proxy ended the request or the connection: it lasted as long as it may.",
			"Look at maxConnectionDuration in the DestinationRules, and at idle timeouts."},
		{"DC", "DownstreamConnectionTermination", Client,
			"The client closed its connection before it had the response, so that no proxy answered.",
			"Look at the client's own timeout, and at how long the application took."},
		{"LH", "FailedLocalHealthCheck", Proxy,
			"The proxy answered with 503: its health check filter says that the application is not well.",
			"Look at the EnvoyFilter that adds the filter, and at the application's health check."},
		{"UT", "UpstreamRequestTimeout", Timeout,
			"The proxy answered with 504: the response did not come within the timeout of the route.",
			"Look at timeout and retries of the VirtualService, and at how long the application takes."},
		{"LR", "LocalReset", Broken,
			"The proxy itself reset the connection to the endpoint, and answered with 503.",
			"Look at limits and timeouts of the cluster, and at the health of the endpoint."},
		{"UR", "UpstreamRemoteReset", Broken,
			"The endpoint reset the request, and the proxy answered with 503.",
			"Look at the application, or at the log of its proxy, for why it reset the stream."},
		{"UC", "UpstreamConnectionTermination", Broken,
			"The endpoint closed the connection before the response was complete, and the proxy answered with 503.",
			"Look at the application: it ended or restarted, or its keep-alive timeout is shorter than the proxy's idleTimeout. With " +
				"mutual TLS that one side does not expect, it is closed at once."},
		{delayed, "DelayInjected", Unknown,
			"The proxy delayed the request on purpose.",
			"Look at fault.delay of the VirtualService."},
		{"FI", "FaultInjected", Fault,
			"The proxy answered with an error on purpose, and the application was not asked.",
			"Look at fault.abort of the VirtualService."},
		{"RL", "RateLimited", RateLimit,
			"The proxy answered with 429: a rate limit was reached.",
			"Look at the EnvoyFilters that add rate limits, and at the rate limit service."},
		{"UAEX", "UnauthorizedExternalService", Authorizer,
			"The proxy answered, with 403 unless the authorizer says otherwise: the external authorizer denied the request, or did not answer.",
			"Look at the AuthorizationPolicies with action CUSTOM, and at the log of the authorizer that their provider names."},
		{"RLSE", "RateLimitServiceError", RateLimit,
			"The proxy answered: the rate limit service failed, and the filter refuses requests then.",
			"Look at the rate limit service, and at failure_mode_deny in the EnvoyFilter that adds the filter."},
		{"IH", "InvalidEnvoyRequestHeaders", Client,
			"The proxy answered with 400: a header of Envoy's own, such as x-envoy-max-retries, has a wrong value.",
			"Look at the x-envoy headers that the client sends."},
		{"SI", "StreamIdleTimeout", Timeout,
			"The proxy ended the request: nothing came from either side for too long.",
			"Look at the idle timeout of the stream, at long-lived streams such as gRPC, and at how long the application takes."},
		{"DPE", "DownstreamProtocolError", Client,
			"The proxy answered with 400, or closed the connection: the request is not HTTP as the listener expects it.",
			"Look at the protocol of the port (its name or appProtocol): a TCP protocol on an HTTP port, " +
				"TLS on a plaintext port, or HTTP/2 on HTTP/1.1."},
		{"UPE", "UpstreamProtocolError", Broken,
			"The proxy answered with 502: the response of the endpoint is not HTTP as the cluster expects it.",
			"Look at the protocol of the port (its name or appProtocol) and at h2UpgradePolicy: the application may not speak HTTP/2."},
		{"UMSDR", "UpstreamMaxStreamDurationReached", Timeout,
			"The proxy ended the request: it lasted as long as a stream to the endpoint may.",
			"Look at maxStreamDuration of routes and clusters, in EnvoyFilters too."},
		{"RFCF", "ResponseFromCacheFilter", Direct,
			"The proxy answered from its cache, and the application was not asked.",
			"Look at the EnvoyFilter that adds the cache filter."},
		{"NFCF", "NoFilterConfigFound", Proxy,
			"The proxy answered with 500: it did not get the configuration of a filter in time.",
			"Look at the WasmPlugins and TrafficExtensions of the workload, and at whether the proxy can fetch their modules."},
		{"OM", "OverloadManagerTerminated", Proxy,
			"The proxy ended the request: it has too little memory or too many connections.",
			"Look at the memory limit of the proxy's container, and at its load."},
		{"DF", "DnsResolutionFailed", Connect,
			"The proxy answered with 503: it could not resolve the name of the endpoint.",
			"Look at the host of the ServiceEntry or of the ExternalName Service, and at the DNS of the proxy's Pod."},
		{"DO", "DropOverload", Overflow,
			"The proxy answered with 503: the endpoints say that a share of all requests is to be dropped.",
			"Look at the EnvoyFilter or the control plane that sets drop_overloads."},
		{"DR", "DownstreamRemoteReset", Client,
			"The client reset the request before it had the response.",
			"Look at the client: its own timeout, or that it gave up."},
		{"UDO", "UnconditionalDropOverload", Overflow,
			"The proxy answered with 503: the endpoints say that all requests are to be dropped.",
			"Look at the EnvoyFilter or the control plane that sets drop_overloads."},
	}
}

// FlagMeaning returns the meaning of a response flag by its short or its long name.
func FlagMeaning(name string) (Meaning, bool) {
	for _, m := range flags() {
		if m.Name == name || m.Long == name {
			return m, true
		}
	}
	return Meaning{}, false
}

// details returns the details of responses, in a text up to the brace or bracket that begins what varies. A name that
// ends with an asterisk is a prefix.
func details() []Meaning {
	const (
		destination = "Look at the application, and at the log of its own proxy: if a proxy is there, its line has the cause."
		protocol    = "Look at the client's request, and at the protocol of the port (its name or appProtocol)."
		retries     = "Look at timeout and retries of the VirtualService, and at how long the application takes."
	)
	d := func(name string, c Cause, says, look string) Meaning {
		return Meaning{Name: name, Cause: c, Says: says, Look: look}
	}
	return []Meaning{
		d("via_upstream", Application, "The response comes from what the proxy passed the request on to.", destination),
		d("route_not_found", NoRoute, "The proxy has no route for the host and the path.",
			"Look at the hosts and matches of the VirtualServices, and at the Gateway that they name."),
		d("route_configuration_not_found", NoRoute, "The proxy has not got the routes of the listener.",
			"Look at whether the proxy is in sync: pilot-discovery proxy-status."),
		d("cluster_not_found", NoCluster, "The route names a cluster that the proxy does not have.",
			"Look at the destination of the route: its host, port and subset, and whether a Sidecar or exportTo hides it."),
		d("no_healthy_upstream", NoEndpoint, "The cluster has no endpoint that takes requests.",
			"Look at the Pods that the Service selects, their readiness, the subset's labels, and outlier detection."),
		d("filter_chain_not_found", NoChain, "No filter chain of the listener is for the connection, and the proxy closed it.",
			"Look at the mode of PeerAuthentications (plaintext where mutual TLS is required), and at the server name of the client's TLS."),
		d(policyDetails, Policy, "The AuthorizationPolicies of the workload denied the request.",
			"Look at the policy that the brackets name; none means that no ALLOW policy allows the request."),
		d("rbac_deny_close", Policy, "The AuthorizationPolicies of the workload denied the connection, and the proxy closed it.",
			"Look at the AuthorizationPolicies of the workload: rules with HTTP fields do not match connections."),
		d("ext_authz_denied", Authorizer, "The external authorizer denied the request.",
			"Look at the AuthorizationPolicies with action CUSTOM, and at the log of the authorizer."),
		d("ext_authz_error", Authorizer, "The external authorizer did not answer, and the proxy denied the request.",
			"Look at the provider in extensionProviders: whether its service has endpoints, and its timeout."),
		d("ext_authz_invalid", Authorizer, "The answer of the external authorizer cannot be used.",
			"Look at the headers that the authorizer adds."),
		d("ext_authz_close", Authorizer, "The external authorizer denied the connection.",
			"Look at the AuthorizationPolicies with action CUSTOM, and at the log of the authorizer."),
		d("jwt_authn_access_denied", Token, "The token of the request is missing, or the proxy refused it: the braces say why.",
			"Look at the RequestAuthentications of the workload, and at the token's issuer, audience and expiry."),
		d("request_rate_limited", RateLimit, "The rate limit service said that the limit was reached.",
			"Look at its configuration and its descriptors."),
		d("rate_limiter_error", RateLimit, "The rate limit service failed.", "Look at the rate limit service."),
		d("local_rate_limited", RateLimit, "The proxy's own rate limit was reached.",
			"Look at the EnvoyFilters with envoy.filters.http.local_ratelimit: the limit applies to each proxy alone."),
		d("fault_filter_abort", Fault, "A fault of the route answered on purpose.", "Look at fault.abort of the VirtualService."),
		d("direct_response", Direct, "The route answers or redirects by itself, and the application was not asked.",
			"Look at directResponse and redirect of the VirtualService, and at httpsRedirect of the Gateway."),
		d("cors_response", Direct, "The proxy answered a CORS preflight by itself.", "Look at corsPolicy of the VirtualService."),
		d("csrf_origin_mismatch", Policy, "The origin of the request is not the one of its host.",
			"Look at the EnvoyFilter that adds the CSRF filter."),
		d("lua_response", Direct, "A Lua filter answered.", "Look at the EnvoyFilters with envoy.filters.http.lua."),
		d("basic_auth", Token, "The user's name and password are missing or wrong.", "Look at the EnvoyFilter that adds the filter."),
		d("request_overall_timeout", Timeout, "The request took longer than the connection manager allows.",
			"Look at EnvoyFilters that set request_timeout."),
		d("response_timeout", Timeout, "The response did not come within the timeout of the route.", retries),
		d("upstream_response_timeout", Timeout, "The response did not come within the timeout of the route.", retries),
		d("upstream_per_try_timeout", Timeout, "The last attempt did not get a response within perTryTimeout.", retries),
		d("upstream_max_stream_duration_reached", Timeout, "The request lasted as long as a stream to the endpoint may.", retries),
		d("max_duration_timeout", Timeout, "The request lasted as long as a stream may.",
			"Look at maxStreamDuration, in EnvoyFilters too."),
		d("duration_timeout", Timeout, "The connection lasted as long as it may.",
			"Look at maxConnectionDuration of the DestinationRules."),
		d("stream_idle_timeout", Timeout, "Nothing came from either side for too long.",
			"Look at the idle timeout of the stream, and at how long the application takes."),
		d("downstream_header_timeout", Timeout, "The client did not send all headers in time.", "Look at the client and its network."),
		d("upstream_reset_before_response_started", Broken,
			"The connection to the endpoint failed before the response began: the braces say how.",
			"Look at the transport failure reason, the application's port, and mutual TLS of both sides."),
		d("upstream_reset_after_response_started", Broken, "The connection to the endpoint broke while the response came.", destination),
		d("upstream_response_protocol_error", Broken, "The response of the endpoint is not HTTP as the cluster expects it.",
			"Look at the protocol of the port, and at h2UpgradePolicy."),
		d("downstream_remote_disconnect", Client, "The client closed the connection.", "Look at the client's own timeout."),
		d("downstream_local_disconnect", Proxy, "The proxy closed the client's connection.",
			"Look at the log of the proxy: it drains when it ends."),
		d("downstream_remote_reset", Client, "The client reset the request.", "Look at the client's own timeout."),
		d("downstream_transport_failure", Client, "TLS of the client's connection failed.", "Look at the certificates of both sides."),
		d("http1.headers_too_large", Client, "The headers of the request are larger than the proxy takes.",
			"Look at the cookies and tokens of the request, and at EnvoyFilters that set max_request_headers_kb (60 KiB by default)."),
		d("http1.too_many_headers", Client, "The request has more headers than the proxy takes.",
			"Look at the client, and at EnvoyFilters that set max_headers_count (100 by default)."),
		d("http1.*", Client, "The proxy cannot read the request as HTTP/1.1.", protocol),
		d("http2.*", Client, "The proxy cannot read the request as HTTP/2, or the client reset it.", protocol),
		d("http3.*", Client, "The proxy cannot read the request as HTTP/3, or the client reset it.", protocol),
		d("codec_error*", Client, "The proxy cannot read the request.", protocol),
		d("absolute_path_rejected", Client, "The target of the request is an absolute URL, which the proxy does not take.", protocol),
		d("low_version", Client, "The request is of HTTP/1.0 or older, which the proxy does not take.", "Let the client use HTTP/1.1."),
		d("missing_host_header", Client, "The request has no host.", "Let the client send the header Host."),
		d("missing_path_rejected", Client, "The request has no path.", protocol),
		d("path_normalization_failed", Client, "The path cannot be normalized.",
			"Look at the path, and at pathNormalization of the mesh."),
		d("request_headers_failed_strict_check", Client, "A header of Envoy's own has a wrong value.",
			"Look at the x-envoy headers of the client."),
		d("request_payload_too_large", Client, "The body of the request is larger than the proxy keeps.",
			"Look at filters that keep the whole body, such as external authorizers (includeRequestBodyInCheck) and Lua."),
		d("request_payload_exceeded_retry_buffer_limit", Client, "The body is too large to be sent again for a retry.", retries),
		d("response_payload_too_large", Broken, "The body of the response is larger than the proxy keeps.",
			"Look at filters that keep the whole body."),
		d("upgrade_failed", Client, "The request asks for an upgrade that the route does not allow.",
			"Look at the protocol of the port; WebSocket is allowed by default."),
		d("internal_redirect", Direct, "The proxy followed a redirect by itself.",
			"Look at the EnvoyFilter that sets internal redirects."),
		d("maintenance_mode", Proxy, "The cluster is in maintenance mode.", "Look at the runtime settings of the proxy."),
		d("overload", Proxy, "The proxy has too little memory or too many connections.",
			"Look at the memory limit of the proxy's container."),
		d("filter_removed_required_*", Proxy, "A filter removed headers without which the proxy cannot go on.",
			"Look at EnvoyFilters and header operations."),
		d("filter_added_invalid_*", Proxy, "A filter added data that the proxy cannot use.", "Look at EnvoyFilters and WasmPlugins."),
		d("ext_proc*", Authorizer, "The external processor answered or failed.",
			"Look at the EnvoyFilter or InferencePool that names it, and at its log."),
		d("dns_resolution_failure", Connect, "The proxy could not resolve the host.",
			"Look at the host, and at the DNS of the proxy's Pod."),
		d("dns_cache*", Connect, "The proxy could not resolve the host.", "Look at the host, and at the DNS of the proxy's Pod."),
		d("dynamic_forward_proxy*", Connect, "The proxy could not resolve the host.",
			"Look at the ServiceEntry with resolution DYNAMIC_DNS."),
		d("admin_filter_response", Direct, "The administration interface of the proxy answered.", "Look at the port that was called."),
		d("drop_overload", Overflow, "The endpoints say that requests are to be dropped.", "Look at what sets drop_overloads."),
		d("unconditional_drop_overload", Overflow, "The endpoints say that all requests are to be dropped.",
			"Look at what sets drop_overloads."),
	}
}

// badCustom is the end of the names of rules by which istiod and this control plane let a proxy deny requests, because
// their authorizer cannot be asked.
const badCustom = "due-to-bad-CUSTOM-action"

// DetailMeaning returns the meaning of the details of a response, or of a connection that the proxy closed.
func DetailMeaning(text string) (Meaning, bool) {
	if rule := policyIn(text); strings.HasSuffix(rule, badCustom) {
		says := "An AuthorizationPolicy with action CUSTOM applies to the workload, and its authorizer cannot be asked: what it matches is " +
			"denied."
		if strings.HasPrefix(rule, "default-deny-all-") {
			says = "AuthorizationPolicies with action CUSTOM apply to the workload, and no authorizer can be asked: istiod lets its proxy deny " +
				"everything."
		}
		return Meaning{Name: text, Cause: Policy, Says: says,
			Look: "Look at the CUSTOM policies of the workload: whether they name one provider, whether extensionProviders of the mesh have it " +
				"as ext_authz, and whether its service and port are there. pilot-discovery analyze names what is wrong."}, true
	}
	name, inside, _ := strings.Cut(text, "{")
	if m, ok := resetMeaning(strings.TrimRight(inside, "}_")); ok {
		m.Name = text
		return m, true
	}
	name, _, _ = strings.Cut(name, "[")
	name = strings.Trim(name, "_:")
	for _, m := range details() {
		prefix, isPrefix := strings.CutSuffix(m.Name, "*")
		if m.Name == name || isPrefix && strings.HasPrefix(name, prefix) {
			m.Name = text
			return m, true
		}
	}
	return Meaning{}, false
}

// resetMeaning returns the meaning of the reason for which a request to an endpoint was reset, as the braces of details
// have it: REASON, or REASON|TRANSPORT FAILURE, with a comma in older versions of Envoy.
func resetMeaning(text string) (Meaning, bool) {
	reason, failure := text, ""
	if at := strings.IndexAny(text, "|,"); at >= 0 {
		reason, failure = text[:at], text[at+1:]
	}
	flag := map[string]string{
		"connection_failure": "UF", "local_connection_failure": "UF", "remote_connection_failure": "UF", "connection_timeout": "UF",
		"connection_termination": "UC", "http1_premature_upstream_half_close": "UC",
		"overflow": "UO", "protocol_error": "UPE", "overload_manager": "OM",
		"local_reset": "LR", "local_refused_stream_reset": "LR", "remote_reset": "UR", "remote_refused_stream_reset": "UR",
	}[reason]
	if m := transportMeaning(failure); flag == "UF" && m.Name != "" {
		return m, true
	}
	return FlagMeaning(flag)
}

// ofConnection returns what a flag says of a connection, which has no status.
func ofConnection(says string) string {
	if rest, ok := strings.CutPrefix(says, "The proxy answered with "); ok {
		_, what, _ := strings.Cut(rest, ": ")
		return "The proxy closed the connection: " + what
	}
	return strings.NewReplacer(", and the proxy answered with 503", "", ", and answered with 503", "").Replace(says)
}

// destinationMeaning returns the meaning of a cluster or a route that is none of a service. Its name is empty for all
// others.
func destinationMeaning(name string) Meaning {
	switch name {
	case "BlackHoleCluster", "block_all":
		return Meaning{Name: name, Cause: Direct,
			Says: "No service of the mesh has the host, the address and the port that were called, and the mesh " +
				"lets no other connections out (outboundTrafficPolicy REGISTRY_ONLY).",
			Look: "Look at the host and port that were called, at Sidecars and exportTo that hide services, and add a ServiceEntry if " +
				"it is outside."}
	case "PassthroughCluster", "allow_any":
		return Meaning{Name: name, Says: "No service that the proxy knows has the host, the address and the port that were called: the " +
			"connection was passed on unchanged, without routes and without mutual TLS of the mesh.",
			Look: "Look at the host and port that were called, and at Sidecars and exportTo that hide services."}
	case "InboundPassthroughCluster":
		return Meaning{Name: name, Says: "No Service has the port that was called: the connection was passed on to the application unchanged.",
			Look: "Look at the ports of the Services that select the Pod."}
	}
	return Meaning{}
}

// refusedMeaning returns the meaning of the reason why TLS of a client failed, to whom the proxy is the server.
func refusedMeaning(reason string) Meaning {
	const chains = "Look at tls of the Gateway's server, or at the mode of PeerAuthentications."
	lower := strings.ToLower(strings.ReplaceAll(reason, "_", " "))
	for _, m := range []Meaning{
		{"did not return a certificate", "", TLS, "The client has shown no certificate, and one is required.", chains},
		{"http request", "", TLS, "The client speaks HTTP in plaintext to a port for TLS.", "Look at the URL that the client calls."},
		{"wrong version number", "", TLS, "The client does not begin TLS.", "Look at the URL that the client calls, and at its proxy settings."},
		{"unsupported protocol", "", TLS, "The client and the proxy have no version of TLS in common.",
			"Look at tls.minProtocolVersion and maxProtocolVersion of the Gateway's server, and at meshMTLS of the mesh."},
		{"no shared cipher", "", TLS, "The client and the proxy have no cipher in common.",
			"Look at tls.cipherSuites of the Gateway's server, and at the type of the certificate's key."},
		{"certificate verify failed", "", TLS, "The proxy does not trust the client's certificate.",
			"Look at ca.crt of the credential, or at whether both sides have the same root: pilot-discovery check compares roots."},
		{"alert certificate unknown", "", TLS, "The client does not trust the proxy's certificate.",
			"Look at the hosts and the issuer of the certificate, and at the roots that the client has."},
		{"alert unknown ca", "", TLS, "The client does not trust the proxy's certificate.",
			"Look at the issuer of the certificate, and at the roots that the client has."},
		{"alert bad certificate", "", TLS, "The client refuses the proxy's certificate.", "Look at the certificate's hosts and its expiry."},
		{"secret is not supplied", "", TLS, "The proxy has no certificate for TLS.", "Look at the Secret that credentialName names."},
	} {
		if strings.Contains(lower, m.Name) {
			m.Name = reason
			return m
		}
	}
	if reason == "" {
		return Meaning{}
	}
	return Meaning{Name: reason, Cause: TLS, Says: "TLS of the client failed.", Look: chains}
}

// transportMeaning returns the meaning of the reason why a connection failed.
func transportMeaning(reason string) Meaning {
	const (
		noListener     = "No application listens on the port of the endpoint."
		noListenerLook = "Look at targetPort of the Service, and at the address that the application listens on."
		noWay          = "The network has no way to the endpoint."
		noWayLook      = "Look at the Pod's node and at NetworkPolicies."
		noAnswerLook   = "Look at NetworkPolicies, and at whether the Pod still exists."
	)
	lower := strings.ToLower(strings.ReplaceAll(reason, "_", " "))
	for _, m := range []Meaning{
		{"wrong version number", "", TLS, "The proxy began TLS, and the other side answered in plaintext.",
			"Look at tls of the DestinationRules of the host: the Pod may have no proxy, or PeerAuthentication may be DISABLE."},
		{"certificate verify failed", "", TLS,
			"The proxy does not trust the certificate of the other side, or the certificate is of another name.",
			"Look at subjectAltNames and caCertificates of the DestinationRule, and at whether both sides have the same root: " +
				"pilot-discovery check compares roots."},
		{"certificate expired", "", TLS, "A certificate has expired.",
			"Look at pilot-discovery check --proxy POD.NAMESPACE --admin 127.0.0.1:15000."},
		{"alert unknown ca", "", TLS, "The other side does not trust the proxy's certificate.",
			"Look at whether both sides have the same root."},
		{"alert certificate required", "", TLS, "The other side demands a client certificate.",
			"Look at tls.mode of the DestinationRule: MUTUAL or ISTIO_MUTUAL."},
		{"handshake failure", "", TLS, "Both sides do not agree on TLS.", "Look at the versions, ciphers and ALPN of both sides."},
		{"secret is not supplied", "", TLS, "The proxy has no certificate for TLS.", "Look at the Secret that credentialName names."},
		{"connection refused", "", Connect, noListener, noListenerLook},
		{"connect error: 111", "", Connect, noListener, noListenerLook}, // ECONNREFUSED
		{"no route to host", "", Connect, noWay, noWayLook},
		{"connect error: 113", "", Connect, noWay, noWayLook}, // EHOSTUNREACH
		{"connect error: 101", "", Connect, noWay, noWayLook}, // ENETUNREACH
		{"connect timeout", "", Connect, "The endpoint did not answer within connectTimeout.", noAnswerLook},
		{"connect error: 110", "", Connect, "The endpoint did not answer: the attempt to connect has timed out.", noAnswerLook}, // ETIMEDOUT
		{"connect error: 104", "", Connect, "The other side reset the connection at once.", // ECONNRESET
			"Look at the log of the application or of the proxy at the endpoint, and at load balancers and firewalls on the way."},
		{"tls error", "", TLS, "TLS to the other side failed.",
			"Look at tls of the DestinationRules, and at the mode of PeerAuthentications."},
	} {
		if strings.Contains(lower, m.Name) {
			m.Name = reason
			return m
		}
	}
	if reason == "" {
		return Meaning{}
	}
	return Meaning{Name: reason, Cause: Connect, Says: "The connection failed.", Look: "Look at the endpoint, and at its network."}
}

// policyIn returns the rule that the details of a response name, or "".
func policyIn(details string) string {
	_, rest, _ := strings.Cut(details, policyDetails+"[")
	return strings.TrimSuffix(strings.TrimRight(rest, "_"), "]")
}

// policyDetails begins the details of requests and connections that an AuthorizationPolicy has denied.
const policyDetails = "rbac_access_denied_matched_policy"

// delayed is the flag of a request that was delayed on purpose. It does not say how the request was answered.
const delayed = "DI"

// response is the body of a response that Envoy gives itself.
type response struct {
	body    string // its beginning
	code    int
	flag    string
	details string
}

const connectError = "upstream connect error or disconnect/reset before headers"

// responses returns the bodies of Envoy's own responses.
func responses() []response {
	return []response{
		{connectError, 503, "", "upstream_reset_before_response_started"},
		{"no healthy upstream", 503, "UH", "no_healthy_upstream"},
		{"RBAC: access denied", 403, "", policyDetails},
		{"Audiences in Jwt are not allowed", 403, "", "jwt_authn_access_denied{Audiences_in_Jwt_are_not_allowed}"},
		{"Jwt is missing", 401, "", "jwt_authn_access_denied{Jwt_is_missing}"},
		{"Jwt is expired", 401, "", "jwt_authn_access_denied{Jwt_is_expired}"},
		{"Jwt not yet valid", 401, "", "jwt_authn_access_denied{Jwt_not_yet_valid}"},
		{"Jwt issuer is not configured", 401, "", "jwt_authn_access_denied{Jwt_issuer_is_not_configured}"},
		{"Jwt verification fails", 401, "", "jwt_authn_access_denied{Jwt_verification_fails}"},
		{"Jwks remote fetch is failed", 401, "", "jwt_authn_access_denied{Jwks_remote_fetch_is_failed}"},
		{"Jwks doesn't have key to match kid or alg from Jwt", 401, "",
			"jwt_authn_access_denied{Jwks_doesn't_have_key_to_match_kid_or_alg_from_Jwt}"},
		{"Jwks", 401, "", "jwt_authn_access_denied"},
		{"Jwt ", 401, "", "jwt_authn_access_denied"},
		{"upstream request timeout", 504, "UT", "response_timeout"},
		{"stream timeout", 504, "SI", "stream_idle_timeout"},
		{"request timeout", 408, "", "request_overall_timeout"},
		{"local_rate_limited", 429, "RL", "local_rate_limited"},
		{"fault filter abort", 0, "FI", "fault_filter_abort"},
		{"Payload Too Large", 413, "", "request_payload_too_large"},
		{"upgrade failed", 403, "", "upgrade_failed"},
	}
}
