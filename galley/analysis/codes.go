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
	name := istioNames()[code]
	if name == "" {
		name = code
	}
	return Code{ID: code, Name: name, URL: "https://istio.io/latest/docs/reference/config/analysis/" + strings.ToLower(code) + "/"}
}

// istioNames returns the names of Istio's codes that are used here.
func istioNames() map[string]string {
	return map[string]string{
		"IST0002": "Deprecated",
		"IST0101": "ReferencedResourceNotFound",
		"IST0102": "NamespaceNotInjected",
		"IST0103": "PodMissingProxy",
		"IST0104": "GatewayPortNotOnWorkload",
		"IST0106": "SchemaValidationError",
		"IST0107": "MisplacedAnnotation",
		"IST0108": "UnknownAnnotation",
		"IST0109": "ConflictingMeshGatewayVirtualServiceHosts",
		"IST0110": "ConflictingSidecarWorkloadSelectors",
		"IST0111": "MultipleSidecarsWithoutWorkloadSelectors",
		"IST0112": "VirtualServiceDestinationPortSelectorRequired",
		"IST0113": "MTLSPolicyConflict",
		"IST0116": "DeploymentAssociatedToMultipleServices",
		"IST0118": "PortNameIsNotUnderNamingConvention",
		"IST0119": "JwtFailureDueToInvalidServicePortPrefix",
		"IST0123": "NamespaceMultipleInjectionLabels",
		"IST0127": "NoMatchingWorkloadsFound",
		"IST0130": "VirtualServiceUnreachableRule",
		"IST0131": "VirtualServiceIneffectiveMatch",
		"IST0132": "VirtualServiceHostNotFoundInGateway",
		"IST0134": "ServiceEntryAddressesRequired",
		"IST0135": "DeprecatedAnnotation",
		"IST0138": "GatewayDuplicateCertificate",
		"IST0141": "InsufficientPermissions",
		"IST0145": "ConflictingGateways",
		"IST0149": "JwtClaimBasedRoutingWithoutRequestAuthN",
		"IST0150": "ExternalNameServiceTypeInvalidPortName",
		"IST0157": "InvalidTelemetryProvider",
		"IST0159": "ConflictingTelemetryWorkloadSelectors",
		"IST0160": "MultipleTelemetriesWithoutWorkloadSelectors",
		"IST0161": "InvalidGatewayCredential",
		"IST0162": "GatewayPortNotDefinedOnService",
		"IST0173": "DestinationRuleSubsetsNotSelectPods",
	}
}
