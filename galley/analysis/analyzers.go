package analysis

// Codes of findings that istioctl analyze has too. istioNames has their names there.
const (
	codeDeprecated         = "IST0002"
	codeReference          = "IST0101"
	codeNotInjected        = "IST0102"
	codeNoProxy            = "IST0103"
	codeMisplaced          = "IST0107"
	codeUnknownAnnotation  = "IST0108"
	codeConflict           = "IST0109"
	codeSidecars           = "IST0110"
	codeDefaultSidecars    = "IST0111"
	codePortRequired       = "IST0112"
	codeMTLS               = "IST0113"
	codeSharedPods         = "IST0116"
	codePortName           = "IST0118"
	codeTokenPort          = "IST0119"
	codeInjectionLabels    = "IST0123"
	codeWorkloads          = "IST0127"
	codeUnreachableRule    = "IST0130"
	codeIneffectiveMatch   = "IST0131"
	codeGatewayHost        = "IST0132"
	codeSchemaWarning      = "IST0133"
	codeAddresses          = "IST0134"
	codeDeprecatedNote     = "IST0135"
	codeSharedCertificate  = "IST0138"
	codeGateways           = "IST0145"
	codeClaims             = "IST0149"
	codeRelativePatch      = "IST0151"
	codeReplacePatch       = "IST0152"
	codeAddPatch           = "IST0153"
	codeRemovePatch        = "IST0154"
	codeVersionedPatch     = "IST0155"
	codeTelemetryProvider  = "IST0157"
	codeProxyImage         = "IST0158"
	codeTelemetries        = "IST0159"
	codeDefaultTelemetries = "IST0160"
	codeGatewayPort        = "IST0162"
	codeSubset             = "IST0173"
)

// Codes of findings that only this project has.
const (
	codeUnreachable  = "UnreachableRoutes"
	codeRewrite      = "RewriteSlash"
	codeTargetPort   = "TargetPortNotFound"
	codeEndpoints    = "NoEndpoints"
	codeRepeated     = "RepeatedSubset"
	codeAddress      = "RepeatedAddress"
	codeHost         = "RepeatedHost"
	codePeers        = "RepeatedPeerAuthentication"
	codeNamespace    = "NearlyRootNamespace"
	codeSelector     = "SelectorInRootNamespace"
	codeMesh         = "MeshConfigNotRead"
	codeProvider     = "NoAuthorizer"
	codeAuthorizers  = "SeveralAuthorizers"
	codeServicePort  = "PortOfService"
	codeSplitRule    = "SplitRule"
	codeTokenPolicy  = "NoTokens"
	codePlaintext    = "PlaintextCallers"
	codeNoProxies    = "NoProxiesOfGateway"
	codePolicies     = "RepeatedTrafficPolicy"
	codeIssuer       = "RepeatedIssuer"
	codeTokenPlace   = "TokenPlace"
	codeProxyConfigs = "RepeatedProxyConfig"
	codeNodeAddress  = "NodeAddress"
	codeProbeHost    = "ProbeHost"
	codeUnresolved   = "UnresolvedName"
	codeSeveral      = "SeveralNames"
	codeHTTP3        = "NoHTTP3"
	codeSidecarRoute = "SidecarRoute"
	codeUnusedRoutes = "UnusedRoutes"
	codeUnknownHost  = "UnknownHost"
	codeTLSMismatch  = "TLSMismatch"
	codeProtocol     = "ProtocolMismatch"
	codeUnusedRule   = "UnusedRule"
	codeNotExported  = "NotExported"
	codeRedirectLoop = "RedirectLoop"
	codeClusterSet   = "ClusterSet"
	codeLimit        = "Limit"        // also used by validation for one object
	codeNoEffect     = "NoEffect"     // also used by validation for one object
	codeNeverMatches = "NeverMatches" // also used by validation for one object
)

// Analyzer finds one kind of mistake between objects.
type Analyzer struct {
	Name    string
	Codes   []string // codes of its findings
	Advice  bool     // reports what is allowed and seldom intended; runs only if Options.Advice is set
	Reports string   // description for users

	run func(*analysis)
}

// Analyzers returns all analyzers in the order in which they run.
func Analyzers() []Analyzer {
	return []Analyzer{
		{"routes", []string{codeReference, codeUnreachable, codeNoEffect, codeLimit}, false,
			"Gateways, hosts, ports, subsets and delegates of VirtualServices that are not there, and rules of delegates that are left out",
			(*analysis).virtualServices},
		{"conflicts", []string{codeConflict, codeLimit}, false,
			"VirtualServices that compete for a host", (*analysis).conflicts},
		{"gateway-routes", []string{codeUnreachable, codeLimit}, false,
			"HTTP routes that a gateway never reaches, because another VirtualService takes their requests", (*analysis).gatewayRoutes},
		{"connection-routes", []string{codeUnreachable, codeLimit}, false,
			"routes of TLS and TCP that a gateway never reaches", (*analysis).connectionRoutes},
		{"route-matches", []string{codeUnreachable, codeLimit}, true,
			"matches of HTTPRoutes that an earlier HTTPRoute has too", (*analysis).routeMatches},
		{"unused-routes", []string{codeUnusedRoutes}, false,
			"rules of VirtualServices for a protocol that no port of their hosts has", (*analysis).unusedRoutes},
		{"gateway-protocols", []string{codeUnusedRoutes}, false,
			"rules of VirtualServices for a protocol that no server of their Gateways has", (*analysis).gatewayProtocols},
		{"rules", []string{codeReference, codeSubset, codeRepeated, codeUnusedRule, codeLimit}, false,
			"hosts and subsets of DestinationRules that match nothing, or are defined twice", (*analysis).destinationRules},
		{"selectors", []string{codeWorkloads}, false, "selectors that match no workload", (*analysis).selectors},
		{"endpoints", []string{codeTargetPort, codeEndpoints}, false,
			"ports of Services that no Pod has, and Services without endpoints", (*analysis).allEndpoints},
		{"pod-addresses", []string{codeAddress}, false, "Pods with the address of another", (*analysis).podAddresses},
		{"no-effect", []string{codeNamespace, codeSelector, codeMesh}, false,
			"objects in places where they have no effect", (*analysis).noEffect},
		{"entry-visibility", []string{codeNotExported}, false,
			"ServiceEntries that the mesh's serviceEntryVisibility hides from namespaces of their exportTo", (*analysis).entryVisibility},
		{"sessions", []string{codeNoEffect}, false,
			"labels that ask for persistent sessions where they have no effect", (*analysis).sessions},
		{"targets", []string{codeReference, codeNoProxies}, false,
			"targetRefs of policies that are not there, or that have no proxies", (*analysis).targets},
		{"authorizers", []string{codeProvider, codeAuthorizers, codeLimit}, false,
			"authorizers of CUSTOM policies that cannot be asked, and several of one workload", (*analysis).authorizers},
		{"tcp-denials", []string{codeSchemaWarning}, false,
			"policies that deny requests, and so all connections to a TCP port of the workload", (*analysis).tcpDenials},
		{"workload-ports", []string{codeServicePort}, false,
			"policies that name the port of a Service instead of the port of its workloads", (*analysis).workloadPorts},
		{"rival-entries", []string{codeHost, codeAddress}, false, "ServiceEntries whose host or address another has", (*analysis).rivalEntries},
		{"peer-authentications", []string{codePeers, codeLimit}, false,
			"several PeerAuthentications of one workload or namespace", (*analysis).peerAuthentications},
		{"proxy-configs", []string{codeProxyConfigs, codeLimit}, false,
			"several ProxyConfigs of one workload or namespace", (*analysis).proxyConfigs},
		{"node-addresses", []string{codeNodeAddress}, false, "endpoints at addresses of Nodes", (*analysis).nodeAddresses},
		{"egress-proxies", []string{codeReference}, false,
			"egress proxies of Sidecars that are not there, or that the Sidecar leaves out", (*analysis).egressProxies},
		{"sidecar-routes", []string{codeSidecarRoute, codeLimit}, false,
			"routes on a port of a Sidecar that lead to what the Sidecar leaves out", (*analysis).sidecarRoutes},
		{"http3", []string{codeHTTP3}, false,
			"servers of Gateways that have no HTTP/3 where the control plane is asked for it", (*analysis).http3},
		{"cluster-sets", []string{codeClusterSet}, false,
			"ServiceExports and ServiceImports that have no effect", (*analysis).clusterSets},
		{"resolutions", []string{codeUnresolved, codeSeveral}, false, "names of endpoints that proxies do not resolve", (*analysis).resolutions},

		{"injection", []string{codeNotInjected, codeNoProxy, codeInjectionLabels, codeNoEffect}, true,
			"namespaces without injection, and Pods without a proxy where others get one", (*analysis).injection},
		{"probe-hosts", []string{codeProbeHost}, true, "hosts of probes of Pods with a proxy", (*analysis).probeHosts},
		{"annotations", []string{codeUnknownAnnotation, codeMisplaced, codeDeprecatedNote, codeNoEffect}, true,
			"Istio's annotations that are unknown, deprecated, or on the wrong kind, and annotations and labels without effect here",
			(*analysis).annotations},
		{"deprecated", []string{codeDeprecated}, true, "deprecated fields", (*analysis).deprecated},
		{"port-names", []string{codePortName}, true,
			"ports of Services whose name does not say their protocol", (*analysis).portNames},
		{"shared-pods", []string{codeSharedPods}, true,
			"Services that give one port of the same Pods different protocols", (*analysis).sharedPods},
		{"one-each", []string{codeSidecars, codeDefaultSidecars, codeTelemetries, codeDefaultTelemetries, codeLimit}, true,
			"several Sidecars, or Telemetries, of one workload or namespace", (*analysis).oneEach},
		{"unreachable", []string{codeUnreachableRule, codeIneffectiveMatch, codeLimit}, true,
			"routes of a VirtualService that an earlier one hides", (*analysis).unreachable},
		{"redirect-loops", []string{codeRedirectLoop, codeLimit}, true,
			"redirects of VirtualServices that lead to the URL that was called", (*analysis).redirectLoops},
		{"tls-fit", []string{codeTLSMismatch, codeLimit}, true,
			"TLS of DestinationRules for Pods without a proxy, or around the TLS of clients", (*analysis).tlsFit},
		{"port-protocols", []string{codeProtocol}, true,
			"routes to ports of another protocol than the one that proxies send there", (*analysis).portProtocols},
		{"match-ports", []string{codeIneffectiveMatch}, true,
			"matches for a port that neither the hosts of a VirtualService nor its Gateways have", (*analysis).matchPorts},
		{"virtual-hosts", []string{codeUnknownHost}, true, "hosts of VirtualServices that no service has", (*analysis).virtualHosts},
		{"gateway-hosts", []string{codeGatewayHost, codeUnknownHost}, true,
			"hosts of VirtualServices and of routes of the Gateway API that their Gateway does not have", (*analysis).gatewayHosts},
		{"gateway-exports", []string{codeNotExported}, true,
			"VirtualServices that are not exported to the proxies of their Gateway", (*analysis).gatewayExports},
		{"rewrites", []string{codeRewrite}, true,
			"rewrites of a prefix that leave two slashes in the path, or none", (*analysis).rewrites},
		{"port-selectors", []string{codePortRequired}, true, "destinations with several ports that name none", (*analysis).portSelectors},
		{"gateway-ports", []string{codeGateways, codeGatewayPort}, true,
			"ports of Gateways that conflict, or that no Service of the gateway has", (*analysis).gatewayPorts},
		{"gateway-certificates", []string{codeSharedCertificate}, true,
			"Gateways that share a certificate, which breaks HTTP/2", (*analysis).gatewayCertificates},
		{"mtls", []string{codeMTLS, codeLimit}, true, "TLS of DestinationRules that contradicts PeerAuthentications", (*analysis).mtls},
		{"auto-mtls", []string{codeTLSMismatch, codeMTLS}, true,
			"workloads that do not take what sidecars send without a DestinationRule: mutual TLS, or plaintext", (*analysis).autoMTLS},
		{"ingress-tls", []string{codeNoEffect}, true,
			"TLS of ingress listeners of Sidecars at ports that have the mesh's own mutual TLS", (*analysis).ingressTLS},
		{"capture-modes", []string{codeNoEffect}, true,
			"ingress listeners of Sidecars for captured traffic at proxies that capture none", (*analysis).captureModes},
		{"claims", []string{codeClaims}, true, "routes by claims of tokens where no RequestAuthentication applies", (*analysis).claims},
		{"issuers", []string{codeIssuer, codeLimit}, true,
			"issuers that several RequestAuthentications of a workload have with different keys", (*analysis).issuers},
		{"tokens", []string{codeTokenPort, codeIssuer, codeTokenPlace}, true,
			"tokens on ports that are not HTTP, issuers that are there twice, and required tokens that exclude each other",
			(*analysis).tokens},
		{"token-policies", []string{codeTokenPolicy}, true,
			"AuthorizationPolicies that read tokens where no RequestAuthentication accepts them", (*analysis).tokenIdentities},
		{"split-rules", []string{codeSplitRule}, true,
			"AuthorizationPolicies whose callers and operations are two rules", (*analysis).splitRules},
		{"gateway-callers", []string{codeNeverMatches}, true,
			"AuthorizationPolicies of gateways that name identities which no server of the gateway learns", (*analysis).gatewayCallers},
		{"trust-domains", []string{codeNeverMatches}, true,
			"AuthorizationPolicies that name identities of a trust domain which the mesh does not have", (*analysis).trustDomains},
		{"plaintext-callers", []string{codePlaintext, codeNeverMatches}, true,
			"AuthorizationPolicies that name identities where callers need none, or have none", (*analysis).plaintextCallers},
		{"addresses", []string{codeAddresses}, true, "TCP ports of ServiceEntries without addresses", (*analysis).entryAddresses},
		{"traffic-policies", []string{codePolicies, codeLimit}, true,
			"DestinationRules of one host that each have a trafficPolicy, or select the same workload", (*analysis).trafficPolicies},
		{"zones", []string{codeNoEffect}, true,
			"balancing by zone where no proxy has the cluster of its own workload", (*analysis).zones},
		{"sidecar-hosts", []string{codeReference}, true,
			"hosts in the egress of Sidecars that no object has", (*analysis).sidecarHosts},
		{"namespaces", []string{codeReference}, true,
			"namespaces in exportTo and AuthorizationPolicies that are not there", (*analysis).namespaceNames},
		{"telemetry-providers", []string{codeTelemetryProvider}, true,
			"providers of Telemetries that the mesh configuration does not have, or that cannot be reached", (*analysis).telemetryProviders},
		{"patches", []string{codeRelativePatch, codeReplacePatch, codeAddPatch, codeRemovePatch, codeVersionedPatch}, true,
			"patches of EnvoyFilters that are ignored, or depend on the order of EnvoyFilters", (*analysis).patches},
		{"proxy-images", []string{codeProxyImage}, true, "Pods whose proxy image is not the image that new Pods get", (*analysis).proxyImages},
	}
}

func (a *analysis) virtualServices() {
	for _, o := range a.judged {
		a.virtualService(o)
	}
}

func (a *analysis) destinationRules() {
	for _, o := range a.rules {
		a.destinationRule(o)
	}
}

func (a *analysis) selectors() {
	for _, o := range a.selecting {
		a.selector(o)
	}
}

func (a *analysis) allEndpoints() {
	for _, o := range a.services {
		a.targetPorts(o)
		a.endpoints(o)
	}
}
