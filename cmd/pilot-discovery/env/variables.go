package env

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Variable describes one environment variable.
type Variable struct{ Name, Otherwise, About string }

// All returns the variables that have an effect, sorted by name, with their defaults.
func All() []Variable {
	return []Variable{
		{"ALLOWED_CIDRS_IN_JWKS_URIS", "", "CIDRs of the server's own host or link from which keys of token issuers may be fetched " +
			"nevertheless, separated by commas"},
		{"BLOCKED_CIDRS_IN_JWKS_URIS", "", "CIDRs from which keys of token issuers are not fetched, separated by commas"},
		{"CA_TRUSTED_NODE_ACCOUNTS", "", "service accounts (namespace/name, separated by commas) that get certificates for the pods of " +
			"their node"},
		{"CERT_SIGNER_DOMAIN", "", "domain of the Kubernetes signers that proxies may name, with EXTERNAL_CA"},
		{"CITADEL_SELF_SIGNED_CA_CERT_TTL", "87600h", "validity of a self-signed root"},
		{"CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "1h", "time between checks of the root"},
		{"CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", "20", "percentage at the end of a root's validity in which it is replaced"},
		{"CLUSTER_ID", "Kubernetes", "default of --clusterID"},
		{"COMPLIANCE_POLICY", "", "fips-140-2, fips-140-3 or pqc: limits TLS of this server's ports, of proxies and of their agents; " +
			"fips-140-3 needs GODEBUG=fips140=only for TLS 1.3"},
		{"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", "", "additional namespaces whose service accounts may read debug pages, separated by commas"},
		{"DEFAULT_WORKLOAD_CERT_TTL", "24h", "validity of workload certificates whose request asks for none"},
		{"ENABLE_CA_SERVER", "true", "false: this server issues no certificates"},
		{"ENABLE_CLUSTER_TRUST_BUNDLE_API", "false", "true: the roots are in a ClusterTrustBundle, and not in a ConfigMap of each namespace"},
		{"ENABLE_DEBUG_ENDPOINT_AUTH", "true", "false has no effect: clients on other hosts always need authorization"},
		{"ENABLE_DEBUG_ON_HTTP", "true", "false: there are no debug pages over HTTP"},
		{"ENABLE_LEADER_ELECTION", "true", "false: this is the only replica, and needs no Lease"},
		{"ENABLE_MCS_AUTO_EXPORT", "false", "true: a ServiceExport is created for each Service that is not cluster-local"},
		{"ENABLE_MCS_CLUSTER_LOCAL", "false", "true: hosts in the cluster's own domain lead to endpoints of the client's cluster alone; " +
			"with ENABLE_MCS_HOST"},
		{"ENABLE_MCS_HOST", "false", "true: each ServiceImport with addresses has a host in clusterset.local; with " +
			"ENABLE_MCS_SERVICE_DISCOVERY"},
		{"ENABLE_MCS_SERVICE_DISCOVERY", "false", "true: clients of other clusters call only endpoints of Services with a ServiceExport"},
		{"ENABLE_NATIVE_SIDECARS", "auto", "true, false or auto: proxies are native sidecars (init containers that keep running); auto " +
			"if all nodes support them"},
		{"EXTERNAL_CA", "", "ISTIOD_RA_KUBERNETES_API: Kubernetes signers sign certificates"},
		{"EXTERNAL_ISTIOD", "false", "true: also maintain the webhooks and roots of remote clusters that ask for it"},
		{"HOME", "", "home directory, whose .kube/config is the default kubeconfig"},
		{"HTTPS_PROXY", "", "URL of the proxy for fetching keys from https:// URLs; also https_proxy"},
		{"HTTP_PROXY", "", "URL of the proxy for fetching keys from http:// URLs; also http_proxy"},
		{"INJECTION_WEBHOOK_CONFIG_NAME", "", "if set to an empty value, injection webhook configurations are not changed"},
		{"INJECT_ENABLED", "true", "false: no proxies are injected"},
		{"ISTIOD_CUSTOM_HOST", "", "additional names of the server in its certificate, separated by commas"},
		{"ISTIO_GPRC_MAXRECVMSGSIZE", "4194304", "default of --maxRecvMessageSize"},
		{"ISTIO_MULTIROOT_MESH", "false", "true: agents are also sent the roots in caCertificates of the mesh configuration"},
		{"ISTIO_WATCH_NAMESPACE", "", "the only namespace, beside the root namespace, whose objects are read from API servers; empty for all"},
		{"JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "false", "true: do not verify certificates of servers of keys; for tests only"},
		{"JWT_RULE", "", "OpenID provider whose tokens are accepted in addition to Kubernetes', as JSON: issuer, audiences, jwks_uri"},
		{"K8S_SIGNER", "", "Kubernetes signer for proxies that name none, with EXTERNAL_CA"},
		{"KUBECONFIG", "", "kubectl's kubeconfig, read if no other source is named"},
		{"KUBERNETES_SERVICE_HOST", "", "set in a pod: the API server of its cluster"},
		{"KUBERNETES_SERVICE_PORT", "", "set in a pod: the port of that API server"},
		{"LOCAL_CLUSTER_SECRET_WATCHER", "false", "true: with EXTERNAL_ISTIOD, the Secrets of remote clusters are in the cluster of this " +
			"server's pod, and not in the one that --kubeconfig names"},
		{"MAX_WORKLOAD_CERT_TTL", "24h", "maximum validity of workload certificates"},
		{"MCS_API_GROUP", "multicluster.x-k8s.io", "group of ServiceExports and ServiceImports; there is no other"},
		{"MCS_API_VERSION", "v1alpha1", "version of created ServiceExports, v1alpha1 or v1beta1; of both, the version that an API server " +
			"serves is read"},
		{"NO_PROXY", "", "hosts, domains and CIDRs, separated by commas, from which keys are fetched without a proxy; also no_proxy"},
		{"PILOT_CA_CERT_CONFIGMAP", "istio-ca-root-cert", "name of the ConfigMap with the roots in each namespace"},
		{"PILOT_CERT_PROVIDER", "istiod", "source of the server's own certificate: istiod (its CA), k8s.io/SIGNER, custom (files) or none"},
		{"PILOT_CRL_CONFIGMAP", "istio-ca-crl", "name of the ConfigMap in each namespace with the revocation lists of a plugged-in CA"},
		{"PILOT_DEBOUNCE_AFTER", "100ms", "default of --debounceAfter"},
		{"PILOT_DEBOUNCE_MAX", "10s", "default of --debounceMax"},
		{names.AlphaVariable, "false", "true: XBackendTrafficPolicies of the Gateway API are read, and limit retries"},
		{"PILOT_ENABLE_ANALYSIS", "false", "true: findings of analyze are written into the statuses of objects"},
		{"PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS", "false", "true: whether an object is in force at all proxies is written into its " +
			"status: the conditions Reconciled, Reconciling and Stalled, and Programmed of Gateways"},
		{"PILOT_ENABLE_GATEWAY_API", "true", "false: nothing is deployed for Gateways of the Gateway API, and no class is created"},
		{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "true", "false: nothing is deployed for Gateways of the Gateway API"},
		{"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", "true", "false: no GatewayClass is created"},
		{names.HeadlessChainsVariable, "false", "true: TCP ports of headless Services share a listener, instead of one for each Pod"},
		{"PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "false", "true: a taint is removed from nodes on which the CNI plugin is ready"},
		{names.SessionsVariable, "false", "true: labels of Services and ServiceEntries ask for sessions that stay at one endpoint"},
		{"PILOT_ENABLE_QUIC_LISTENERS", "false", "true: gateways accept and announce HTTP/3 on HTTPS ports that their Service also has for UDP"},
		{"PILOT_ENABLE_VHDS", "true", "false: virtual hosts are always part of route configurations (no VHDS)"},
		{"PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", "true", "false: proxies that name a WorkloadGroup get no WorkloadEntry"},
		{"PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", "true", "false: the application health that agents report is not written"},
		{"PILOT_ENABLE_XDS_CACHE", "true", "false: every resource is encoded again instead of being shared; for tests only"},
		{"PILOT_GATEWAY_API_CONTROLLER_NAME", names.GatewayController, "controller of the GatewayClasses that are served"},
		{"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", "istio", "name of the GatewayClass that this control plane creates"},
		{"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", "15s", "time limit for the TLS handshakes of clients; 0s for none"},
		{"PILOT_HTTP10", "false", "true: all proxies accept HTTP/1.0"},
		{"PILOT_IGNORE_RESOURCES", "", "kinds that are not read from API servers, separated by commas: resources such as " +
			"sidecars.networking.istio.io, or a group and its subgroups as *.istio.io"},
		{"PILOT_INCLUDE_RESOURCES", "", "kinds that are read although PILOT_IGNORE_RESOURCES matches them, in the same form"},
		{"PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", "", "unsafe features, such as exec, that kubeconfigs of remote " +
			"clusters may have, separated by commas"},
		{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "240.240.0.0/16", "range of the addresses that ServiceEntries without addresses get"},
		{"PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "2001:2::/48", "the same for IPv6"},
		{"PILOT_JWT_ENABLE_REMOTE_JWKS", "false", "component that fetches keys of token issuers: istiod or false, the server; envoy, the " +
			"proxies; hybrid or true, the proxies if the host of the keys is a service of the mesh, else the server"},
		{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "20m", "time after which keys of token issuers are fetched again"},
		{"PILOT_MAX_STREAMS", "12000", "default of --maxStreams"},
		{"PILOT_MULTICLUSTER_KUBECONFIG_PATH", "", "directory with kubeconfigs of remote clusters, used instead of Secrets"},
		{"PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", names.TaintNotReady, "key of that taint"},
		{"PILOT_REMOTE_CLUSTER_TIMEOUT", "30s", "default of --remoteClusterTimeout"},
		{names.ScopeGatewaysVariable, "false", "true: a Gateway applies only to workloads of its own namespace"},
		{"PILOT_SIDECAR_USE_REMOTE_ADDRESS", "false", "true: sidecars take the address of the application as the origin of its requests"},
		{"PILOT_SKIP_VALIDATE_TRUST_DOMAIN", "false", "true: workloads accept peers of any trust domain whose certificates their roots prove"},
		{"PILOT_STATUS_QPS", "20", "maximum statuses of objects written a second, for all objects together"},
		{"PILOT_TRACE_SAMPLING", "0", "default percentage of traced requests"},
		{"PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "10s", "time that a WorkloadEntry stays after its proxy disconnected"},
		{"POD_NAME", "", "default of --podName"},
		{"POD_NAMESPACE", "istio-system", "default of --namespace, the root namespace"},
		{"RESOLVE_HOSTNAME_GATEWAYS", "true", "false: gateways of other networks whose addresses are host names are left out"},
		{"REVISION", "", "default of --revision"},
		{"ROOT_CA_DIR", "./etc/cacerts", "directory of a plugged-in CA, with Istio's file names"},
		{"SHARED_MESH_CONFIG", "", "default of --sharedMeshConfig"},
		{"TOKEN_AUDIENCES", "istio-ca", "audiences that tokens of proxies may have, separated by commas"},
		{"TRUSTED_GATEWAY_CIDR", "", "CIDRs of gateways that may assert the identity of their callers, separated by commas"},
		{"UNSAFE_ENABLE_ADMIN_ENDPOINTS", "false", "true: serve debug pages that change state"},
		{"USE_CACERTS_FOR_SELF_SIGNED_CA", "false", "true: store the self-signed CA in the Secret cacerts instead of istio-ca-secret"},
		{"VALIDATION_WEBHOOK_CONFIG_NAME", "", "if set to an empty value, validation webhook configurations are not changed"},
	}
}

// Describe returns a table of the variables that were read, with their descriptions.
func Describe(read []string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, v := range All() {
		if slices.Contains(read, v.Name) {
			about := v.About
			if v.Otherwise != "" {
				about += " (" + v.Otherwise + ")"
			}
			fmt.Fprintf(t, "  %s\t%s\n", v.Name, about)
		}
	}
	_ = t.Flush() // cannot fail on a strings.Builder
	return strings.TrimRight(b.String(), "\n") + "\n"
}
