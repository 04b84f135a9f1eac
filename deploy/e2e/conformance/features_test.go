package conformance

import (
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// profiles are those that istiod reports, and the mesh's of gRPC.
func profiles() []suite.ConformanceProfileName {
	return []suite.ConformanceProfileName{
		suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName, suite.GatewayTLSConformanceProfileName, suite.GatewayTCPConformanceProfileName,
		suite.MeshHTTPConformanceProfileName, suite.MeshGRPCConformanceProfileName,
	}
}

// claimed are the features beyond the core that istiod 1.31.0 claims in its report of Gateway API 1.6.
func claimed() []features.FeatureName {
	return []features.FeatureName{
		"BackendTLSPolicy", "BackendTLSPolicySANValidation", "GatewayAddressEmpty", "GatewayFrontendClientCertificateValidation",
		"GatewayFrontendClientCertificateValidationInsecureFallback", "GatewayHTTPListenerIsolation", "GatewayInfrastructurePropagation", "GatewayPort8080",
		"GatewayStaticAddresses", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteBackendTimeout", "HTTPRouteCORS",
		"HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort",
		"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
		"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification", "HTTPRouteRetry",
		"HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError", "HTTPRouteSchemeRedirect", "ListenerSet", "TCPRoute", "TLSRouteModeMixed",
		"TLSRouteModeTerminate", "MeshConsumerRoute", "MeshHTTPRouteBackendRequestHeaderModification", "MeshHTTPRouteNamedRouteRule",
		"MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteRedirectPath", "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRewritePath", "MeshHTTPRouteSchemeRedirect",
	}
}

// quick is the test that runs where nothing else is asked for.
const quick = "HTTPRouteSimpleSameNamespace"

// failing are the tests that are left out, each with its reason, which deploy/conformance/README.md has too.
func failing() map[string]string {
	const secrets = "not run since the proxies of a Gateway get the certificates that it names"
	const listenerSets = "not run since a ListenerSet without a valid listener is not programmed, and is not counted"
	return map[string]string{
		"BackendTLSPolicy": secrets,
		"GatewayFrontendClientCertificateValidationInsecureFallback": secrets,
		"GatewayListenerUnsupportedProtocol":                         "not run since a Gateway with a listener of an unknown protocol gets a status",
		"BackendTLSPolicyConflictResolution":                         secrets,
		"ListenerSetHostnameConflict":                                listenerSets,
		"ListenerSetProtocolConflict":                                listenerSets,
		"ListenerSetReferenceGrant":                                  listenerSets,
		"GatewayFrontendClientCertificateValidation":                 secrets,
		"GatewayStaticAddresses":                                     "not run since a Gateway with an address of a type that is not supported is not accepted",
		"HTTPRouteHTTPSListener":                                     secrets,
		"HTTPRouteRedirectPortAndScheme":                             secrets + ", and a redirect to another host has the listener's port",
		"TLSRouteMixedTerminationSameNamespace":                      secrets,
		"TLSRouteTerminateSimpleSameNamespace":                       secrets,
	}
}
