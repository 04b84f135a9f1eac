package analysis

import (
	"cmp"
	"strings"
)

// Code describes a code of findings.
type Code struct {
	ID   string // Istio's ID, if Istio has one
	Name string
	URL  string // Istio's documentation; optional
}

// Describe returns the description of a code. Findings about the form or the values of one object have several codes
// here and one in Istio, IST0106.
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
	name := cmp.Or(istioNames[code], code)
	return Code{ID: code, Name: name, URL: "https://istio.io/latest/docs/reference/config/analysis/" + strings.ToLower(code) + "/"}
}

// istioNames has Istio's names of the codes that are used here.
var istioNames = map[string]string{
	codeDeprecated:         "Deprecated",
	codeReference:          "ReferencedResourceNotFound",
	codeNotInjected:        "NamespaceNotInjected",
	codeNoProxy:            "PodMissingProxy",
	"IST0104":              "GatewayPortNotOnWorkload",
	"IST0106":              "SchemaValidationError",
	codeMisplaced:          "MisplacedAnnotation",
	codeUnknownAnnotation:  "UnknownAnnotation",
	codeConflict:           "ConflictingMeshGatewayVirtualServiceHosts",
	codeSidecars:           "ConflictingSidecarWorkloadSelectors",
	codeDefaultSidecars:    "MultipleSidecarsWithoutWorkloadSelectors",
	codePortRequired:       "VirtualServiceDestinationPortSelectorRequired",
	codeMTLS:               "MTLSPolicyConflict",
	codeSharedPods:         "DeploymentAssociatedToMultipleServices",
	codePortName:           "PortNameIsNotUnderNamingConvention",
	codeTokenPort:          "JwtFailureDueToInvalidServicePortPrefix",
	codeInjectionLabels:    "NamespaceMultipleInjectionLabels",
	codeWorkloads:          "NoMatchingWorkloadsFound",
	codeUnreachableRule:    "VirtualServiceUnreachableRule",
	codeIneffectiveMatch:   "VirtualServiceIneffectiveMatch",
	codeGatewayHost:        "VirtualServiceHostNotFoundInGateway",
	codeSchemaWarning:      "SchemaWarning",
	codeAddresses:          "ServiceEntryAddressesRequired",
	codeDeprecatedNote:     "DeprecatedAnnotation",
	codeSharedCertificate:  "GatewayDuplicateCertificate",
	"IST0141":              "InsufficientPermissions",
	codeGateways:           "ConflictingGateways",
	codeClaims:             "JwtClaimBasedRoutingWithoutRequestAuthN",
	codeRelativePatch:      "EnvoyFilterUsesRelativeOperation",
	codeReplacePatch:       "EnvoyFilterUsesReplaceOperationIncorrectly",
	codeAddPatch:           "EnvoyFilterUsesAddOperationIncorrectly",
	codeRemovePatch:        "EnvoyFilterUsesRemoveOperationIncorrectly",
	codeVersionedPatch:     "EnvoyFilterUsesRelativeOperationWithProxyVersion",
	codeProxyImage:         "PodsIstioProxyImageMismatchInNamespace",
	codeTelemetryProvider:  "InvalidTelemetryProvider",
	codeTelemetries:        "ConflictingTelemetryWorkloadSelectors",
	codeDefaultTelemetries: "MultipleTelemetriesWithoutWorkloadSelectors",
	"IST0161":              "InvalidGatewayCredential",
	codeGatewayPort:        "GatewayPortNotDefinedOnService",
	codeSubset:             "DestinationRuleSubsetsNotSelectPods",
}
