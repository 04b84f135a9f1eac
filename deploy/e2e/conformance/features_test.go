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
	const listenerSets = "a ListenerSet does not get the condition that is waited for; not understood yet"
	return map[string]string{
		"BackendTLSPolicy": secrets,
		"GatewayFrontendClientCertificateValidationInsecureFallback": secrets,
		"GatewayInvalidListenersUnsupportedProtocol":                 "not run since a Gateway with a listener of an unknown protocol gets a status",
		"BackendTLSPolicyConflictResolution":                         secrets,
		"ListenerSetHostnameConflict":                                listenerSets,
		"ListenerSetProtocolConflict":                                listenerSets,
		"ListenerSetReferenceGrant":                                  listenerSets,
		"GatewayFrontendClientCertificateValidation":                 secrets,
		"GatewayStaticAddresses":                                     "not understood yet",
		"HTTPRouteHTTPSListener":                                     secrets,
		"HTTPRouteRedirectPortAndScheme":                             secrets + "; a redirect on a listener of another port than 80 leaves its port out",
		"TLSRouteMixedTerminationSameNamespace":                      secrets,
		"TLSRouteTerminateSimpleSameNamespace":                       secrets,
	}
}
