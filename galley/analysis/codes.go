package analysis

import "strings"

// Code is what a code of findings means.
type Code struct {
	ID   string // Istio's, where Istio has one
	Name string
	URL  string // of Istio's documentation, or empty
}

// Describe returns what a code means. What is wrong with the form or the values of one object has several codes here
// and one in Istio, IST0106.
func Describe(code string) Code {
	switch code {
	case "":
		return Code{ID: "Finding", Name: "Finding"}
	case "Syntax", "UnknownField", "WrongType", "InvalidValue", "MissingField", "DuplicateKey", "UnknownKind", "UnknownVersion", "Unusable":
		code = "IST0106"
	case "BadCredential":
		code = "IST0161"
	}
	if !strings.HasPrefix(code, "IST") {
		return Code{ID: code, Name: code}
	}
	name := istioName(code)
	if name == "" {
		name = code
	}
	return Code{ID: code, Name: name, URL: "https://istio.io/latest/docs/reference/config/analysis/" + strings.ToLower(code) + "/"}
}

// istioName returns the name of one of Istio's codes that are used here, or "".
func istioName(code string) string {
	switch code {
	case codeDeprecated:
		return "Deprecated"
	case codeReference:
		return "ReferencedResourceNotFound"
	case codeNotInjected:
		return "NamespaceNotInjected"
	case codeNoProxy:
		return "PodMissingProxy"
	case "IST0104":
		return "GatewayPortNotOnWorkload"
	case "IST0106":
		return "SchemaValidationError"
	case codeMisplaced:
		return "MisplacedAnnotation"
	case codeUnknownAnnotation:
		return "UnknownAnnotation"
	case codeConflict:
		return "ConflictingMeshGatewayVirtualServiceHosts"
	case codeSidecars:
		return "ConflictingSidecarWorkloadSelectors"
	case codeDefaultSidecars:
		return "MultipleSidecarsWithoutWorkloadSelectors"
	case codePortRequired:
		return "VirtualServiceDestinationPortSelectorRequired"
	case codeMTLS:
		return "MTLSPolicyConflict"
	case codeSharedPods:
		return "DeploymentAssociatedToMultipleServices"
	case codePortName:
		return "PortNameIsNotUnderNamingConvention"
	case codeTokenPort:
		return "JwtFailureDueToInvalidServicePortPrefix"
	case codeInjectionLabels:
		return "NamespaceMultipleInjectionLabels"
	case codeWorkloads:
		return "NoMatchingWorkloadsFound"
	case codeUnreachableRule:
		return "VirtualServiceUnreachableRule"
	case codeIneffectiveMatch:
		return "VirtualServiceIneffectiveMatch"
	case codeGatewayHost:
		return "VirtualServiceHostNotFoundInGateway"
	case codeAddresses:
		return "ServiceEntryAddressesRequired"
	case codeDeprecatedNote:
		return "DeprecatedAnnotation"
	case codeSharedCertificate:
		return "GatewayDuplicateCertificate"
	case "IST0141":
		return "InsufficientPermissions"
	case codeGateways:
		return "ConflictingGateways"
	case codeClaims:
		return "JwtClaimBasedRoutingWithoutRequestAuthN"
	case codeExternalName:
		return "ExternalNameServiceTypeInvalidPortName"
	case codeRelativePatch:
		return "EnvoyFilterUsesRelativeOperation"
	case codeReplacePatch:
		return "EnvoyFilterUsesReplaceOperationIncorrectly"
	case codeAddPatch:
		return "EnvoyFilterUsesAddOperationIncorrectly"
	case codeRemovePatch:
		return "EnvoyFilterUsesRemoveOperationIncorrectly"
	case codeVersionedPatch:
		return "EnvoyFilterUsesRelativeOperationWithProxyVersion"
	case codeProxyImage:
		return "PodsIstioProxyImageMismatchInNamespace"
	case codeTelemetryProvider:
		return "InvalidTelemetryProvider"
	case codeTelemetries:
		return "ConflictingTelemetryWorkloadSelectors"
	case codeDefaultTelemetries:
		return "MultipleTelemetriesWithoutWorkloadSelectors"
	case "IST0161":
		return "InvalidGatewayCredential"
	case codeGatewayPort:
		return "GatewayPortNotDefinedOnService"
	case codeSubset:
		return "DestinationRuleSubsetsNotSelectPods"
	}
	return ""
}
