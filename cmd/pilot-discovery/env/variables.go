package env

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Variable describes one variable of the environment.
type Variable struct{ Name, Otherwise, About string }

// All are those that have an effect, by name, with what holds where they are not set.
func All() []Variable {
	return []Variable{
		{"ALLOWED_CIDRS_IN_JWKS_URIS", "", "addresses that keys of token issuers may be fetched from although they are the server's own host or link, as CIDRs with commas between"},
		{"BLOCKED_CIDRS_IN_JWKS_URIS", "", "addresses that keys of token issuers are not fetched from, as CIDRs with commas between"},
		{"CA_TRUSTED_NODE_ACCOUNTS", "", "service accounts, namespace/name with commas between, that get certificates for the pods of their node"},
		{"CERT_SIGNER_DOMAIN", "", "domain of the signers of Kubernetes that proxies may name, with EXTERNAL_CA"},
		{"CITADEL_SELF_SIGNED_CA_CERT_TTL", "87600h", "how long a root of the server's own is valid"},
		{"CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "1h", "how often the root is looked at"},
		{"CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", "20", "the last part of a root's life, in percent, in which it is replaced"},
		{"CLUSTER_ID", "Kubernetes", "default of --clusterID"},
		{"COMPLIANCE_POLICY", "", "a policy for the TLS of proxies that injection hands on, such as fips-140-2"},
		{"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", "", "more namespaces whose service accounts may read debug pages, with commas between"},
		{"DEFAULT_WORKLOAD_CERT_TTL", "24h", "how long a certificate of a workload is valid that asks for no time"},
		{"ENABLE_CA_SERVER", "true", "false: others issue certificates"},
		{"ENABLE_DEBUG_ENDPOINT_AUTH", "true", "false has no effect: debug pages are never served to just anybody"},
		{"ENABLE_DEBUG_ON_HTTP", "true", "false: there are no debug pages over HTTP"},
		{"ENABLE_LEADER_ELECTION", "true", "false: this is the only replica, and needs no Lease"},
		{"ENABLE_NATIVE_SIDECARS", "auto", "true, false or auto: proxies are init containers that go on running; auto is where every node can"},
		{"EXTERNAL_CA", "", "ISTIOD_RA_KUBERNETES_API: signers of Kubernetes sign certificates"},
		{"EXTERNAL_ISTIOD", "false", "true: webhooks and roots of remote clusters that ask for it are kept, too"},
		{"HOME", "", "where kubectl's kubeconfig is, in .kube/config, if nothing names one"},
		{"HTTPS_PROXY", "", "URL of the proxy by which https:// URLs of keys are fetched; also https_proxy"},
		{"HTTP_PROXY", "", "URL of the proxy by which http:// URLs of keys are fetched; also http_proxy"},
		{"INJECTION_WEBHOOK_CONFIG_NAME", "", "set to nothing: the webhook configurations that inject are left alone"},
		{"INJECT_ENABLED", "true", "false: no proxies are injected"},
		{"ISTIOD_CUSTOM_HOST", "", "more names of the server in its certificate, with commas between"},
		{"ISTIO_GPRC_MAXRECVMSGSIZE", "4194304", "default of --maxRecvMessageSize"},
		{"ISTIO_MULTIROOT_MESH", "false", "true: agents are sent the roots of caCertificates in the mesh configuration, too"},
		{"JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "false", "true: servers of keys need no certificate that is trusted; for tests"},
		{"JWT_RULE", "", "an OpenID provider whose tokens count beside those of Kubernetes, as JSON: issuer, audiences, jwks_uri"},
		{"K8S_SIGNER", "", "the signer of Kubernetes for proxies that name none, with EXTERNAL_CA"},
		{"KUBECONFIG", "", "the kubeconfig that kubectl takes: what is read where nothing else is named"},
		{"KUBERNETES_SERVICE_HOST", "", "set in a pod: the API server of its cluster"},
		{"KUBERNETES_SERVICE_PORT", "", "set in a pod: the port of that"},
		{"MAX_WORKLOAD_CERT_TTL", "24h", "how long a certificate of a workload is valid at most"},
		{"NO_PROXY", "", "hosts, domains and CIDRs, with commas between, that are fetched from without a proxy; also no_proxy"},
		{"PILOT_CA_CERT_CONFIGMAP", "istio-ca-root-cert", "name of the ConfigMap with the roots in each namespace"},
		{"PILOT_CERT_PROVIDER", "istiod", "where the server's own certificate comes from: istiod (its CA), k8s.io/SIGNER, custom (files) or none"},
		{"PILOT_CRL_CONFIGMAP", "istio-ca-crl", "name of the ConfigMap with the revocation lists of a CA that is plugged in, in each namespace"},
		{"PILOT_DEBOUNCE_AFTER", "100ms", "default of --debounceAfter"},
		{"PILOT_DEBOUNCE_MAX", "10s", "default of --debounceMax"},
		{"PILOT_ENABLE_ANALYSIS", "false", "true: what analyze finds is written into the status of objects"},
		{"PILOT_ENABLE_GATEWAY_API", "true", "false: nothing is deployed for Gateways of the Gateway API, and no class is created"},
		{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "true", "false: nothing is deployed for Gateways of the Gateway API"},
		{"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", "true", "false: no GatewayClass is created"},
		{"PILOT_ENABLE_QUIC_LISTENERS", "false", "true: gateways take HTTP/3, too, on ports for HTTPS that their Service has for UDP as well, and responses say so"},
		{"PILOT_ENABLE_VHDS", "true", "false: proxies get virtual hosts with their routes, and not by themselves"},
		{"PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", "true", "false: proxies that name a WorkloadGroup get no WorkloadEntry"},
		{"PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", "true", "false: what agents say of the health of their application is not written"},
		{"PILOT_ENABLE_XDS_CACHE", "true", "false: every resource is encoded anew (--noMemo); for tests"},
		{"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", "istio", "name of the class of Gateways that this control plane creates"},
		{"PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", "", "default of --insecureKubeconfigOptions"},
		{"PILOT_JWT_ENABLE_REMOTE_JWKS", "false", "who fetches keys of token issuers: istiod (the server), hybrid, or envoy (the proxies)"},
		{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "20m", "how often keys of token issuers are fetched anew"},
		{"PILOT_MAX_STREAMS", "12000", "default of --maxStreams"},
		{"PILOT_REMOTE_CLUSTER_TIMEOUT", "30s", "default of --remoteClusterTimeout"},
		{"PILOT_STATUS_QPS", "20", "statuses of objects that are written in a second at most"},
		{"PILOT_TRACE_SAMPLING", "0", "percent of requests that are traced where nothing else says it"},
		{"PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "10s", "how long a WorkloadEntry stays after its proxy has gone"},
		{"POD_NAME", "the host's name", "default of --podName"},
		{"POD_NAMESPACE", "istio-system", "default of --namespace, the root namespace"},
		{"REVISION", "", "default of --revision"},
		{"ROOT_CA_DIR", "./etc/cacerts", "directory of a CA that is plugged in, under the names that Istio gives its files"},
		{"SHARED_MESH_CONFIG", "", "default of --sharedMeshConfig"},
		{"TOKEN_AUDIENCES", "istio-ca", "audiences that tokens of proxies may have, with commas between"},
		{"TRUSTED_GATEWAY_CIDR", "", "addresses of gateways that may say who their callers are, as CIDRs with commas between"},
		{"UNSAFE_ENABLE_ADMIN_ENDPOINTS", "false", "true: debug pages that change something are served"},
		{"USE_CACERTS_FOR_SELF_SIGNED_CA", "false", "true: the server's own CA is kept in the Secret cacerts, and not in istio-ca-secret"},
		{"VALIDATION_WEBHOOK_CONFIG_NAME", "", "set to nothing: the webhook configurations that validate are left alone"},
	}
}

// Describe lists those that were read, with what they are for.
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
	_ = t.Flush() // to a builder
	return strings.TrimRight(b.String(), "\n") + "\n"
}
