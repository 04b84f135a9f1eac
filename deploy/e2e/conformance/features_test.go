package conformance

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// profiles returns the profiles that istiod reports, and the one for gRPC in meshes.
func profiles() []suite.ConformanceProfile {
	return []suite.ConformanceProfile{
		suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile, suite.GatewayTLSConformanceProfile,
		suite.GatewayTCPConformanceProfile,
		suite.MeshHTTPConformanceProfile, suite.MeshGRPCConformanceProfile,
	}
}

// claimed returns the features beyond the core that must work: those of istiod, and more.
func claimed() []features.FeatureName {
	if os.Getenv(istiodVar) != "" {
		return claimedByIstiod()
	}
	return append(claimedByIstiod(), "GatewayBackendClientCertificate")
}

// claimedByIstiod returns the features that istiod 1.31.0 claims in its report for Gateway API 1.6.
func claimedByIstiod() []features.FeatureName {
	return []features.FeatureName{
		"BackendTLSPolicy", "BackendTLSPolicySANValidation", "GatewayAddressEmpty", "GatewayFrontendClientCertificateValidation",
		"GatewayFrontendClientCertificateValidationInsecureFallback", "GatewayHTTPListenerIsolation", "GatewayInfrastructure", "GatewayPort8080",
		"GatewayStaticAddresses", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification",
		"HTTPRouteBackendTimeout", "HTTPRouteCORS",
		"HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule",
		"HTTPRouteParentRefPort",
		"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
		"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification",
		"HTTPRouteRetry",
		"HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError", "HTTPRouteSchemeRedirect", "ListenerSet", "TCPRoute",
		"TLSRouteModeMixed",
		"TLSRouteModeTerminate", "MeshConsumerRoute", "MeshHTTPRouteBackendRequestHeaderModification", "MeshHTTPRouteNamedRouteRule",
		"MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteRedirectPath", "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRewritePath",
		"MeshHTTPRouteSchemeRedirect",
	}
}

// choose returns the tests to run: all claimed ones, those of the core of a profile, or the named ones.
func choose(what string) ([]suite.ConformanceTest, error) {
	names := strings.Split(what, ",")
	supported := sets.New(claimed()...)
	for _, p := range profiles() {
		supported = supported.Union(p.CoreFeatures)
	}
	chosen := slices.DeleteFunc(slices.Clone(tests.ConformanceTests), func(t suite.ConformanceTest) bool {
		switch what {
		case "all":
			return !supported.HasAll(t.Features...)
		case "core":
			return !slices.ContainsFunc(profiles(), func(p suite.ConformanceProfile) bool { return p.CoreFeatures.HasAll(t.Features...) })
		}
		return !slices.Contains(names, t.ShortName)
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("the suite has no test %s", what)
	}
	return chosen, nil
}
