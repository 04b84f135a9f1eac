package node

import (
	"slices"
	"strconv"
	"strings"
)

// Field is an entry of a node's metadata that Istio's agents send or istiod reads.
type Field struct {
	Key    string
	Effect string // its effect; empty if it has none
	Reason string // why it has no effect; empty if it has one
	Fix    string // remedy if a proxy sets it without effect; empty if it is not logged
	asks   func(value string) bool
}

// Fields returns the known entries, those with an effect first.
func Fields() []Field { return slices.Clone(fields) }

var fields = append(effective(), ineffective()...)

func effective() []Field {
	const client = "with the two other fields of TLS_CLIENT: replaces the certificate and roots of the mesh in connections that " +
		"the proxy makes with mutual TLS, whatever a DestinationRule says of certificates, except to hosts outside the mesh; without " +
		"a certificate and a key, none has an effect"
	const server = "replaces the mesh's in connections that the proxy takes with mutual TLS of the mesh"
	return []Field{
		{Key: "NAMESPACE", Effect: "the namespace whose configuration the proxy reads"},
		{Key: "CLUSTER_ID", Effect: "the Kubernetes cluster of the proxy"},
		{Key: "NETWORK", Effect: "the network of the proxy"},
		{Key: "REQUESTED_NETWORK_VIEW", Effect: "the networks whose endpoints the proxy is sent"},
		{Key: "INSTANCE_IPS", Effect: "the addresses of the proxy"},
		{Key: "NODE_NAME", Effect: "the node of the proxy, unless its workload names one"},
		{Key: "WORKLOAD_NAME", Effect: "the canonical service in telemetry, unless a label has it"},
		{Key: "SERVICE_ACCOUNT", Effect: "the service account that debug pages show; what a proxy may do depends on its certificate alone"},
		{Key: "MESH_ID", Effect: "the mesh in telemetry"},
		{Key: "LABELS", Effect: "the labels by which objects select the proxy, unless its workload is known"},
		{Key: "STATIC_LABELS", Effect: "labels beside LABELS"},
		{Key: "ANNOTATIONS", Effect: "checked to be texts; the agent uses them for statistics"},
		{Key: "ISTIO_VERSION", Effect: "the version that EnvoyFilters match"},
		{Key: "ISTIO_REVISION", Effect: "the revision that debug pages show"},
		{Key: "PROXY_CONFIG", Effect: "the proxy's own configuration: over the defaultConfig of the mesh"},
		{Key: "INTERCEPTION_MODE", Effect: "REDIRECT, TPROXY or NONE: how traffic reaches the proxy"},
		{Key: "HTTP_PROXY_PORT", Effect: "the port on which the proxy is an HTTP proxy: over proxyHttpPort of the mesh"},
		{Key: "GENERATOR", Effect: "grpc: an application that uses xDS without a proxy; api: a reader of configuration"},
		{Key: "AUTO_REGISTER_GROUP", Effect: "the WorkloadGroup that the proxy joins by itself"},
		{Key: "HTTP10", Effect: "1: listeners take HTTP/1.0"},
		{Key: "UNPRIVILEGED_POD", Effect: "true: a gateway may not bind ports below 1024"},
		{Key: "DNS_CAPTURE", Effect: "true: the agent answers DNS requests"},
		{Key: "DNS_AUTO_ALLOCATE", Effect: "true: with DNS_CAPTURE, ServiceEntries without addresses have allocated ones"},
		{Key: "ENABLE_SELF_DISCOVERY", Effect: "true: the bootstrap has local_cluster, the cluster of the proxy's own workload; Envoy " +
			"needs it for zoneAwareLbSetting"},
		{Key: "INBOUND_LISTENER_EXACT_BALANCE", Effect: "true: the threads of Envoy share incoming connections evenly"},
		{Key: "OUTBOUND_LISTENER_EXACT_BALANCE", Effect: "true: the threads of Envoy share outgoing connections, or those of a " +
			"gateway, evenly"},
		{Key: "ENVOY_STATUS_PORT", Effect: "the port where Envoy answers probes of readiness: no listener takes it"},
		{Key: "ENVOY_PROMETHEUS_PORT", Effect: "the port where Envoy serves metrics: no listener takes it"},
		{Key: "ENVOY_SECURE_METRICS_PORT", Effect: "the port where Envoy serves metrics by mutual TLS: no listener takes it"},
		{Key: "ENVOY_SECURE_MERGED_METRICS_PORT", Effect: "the port where Envoy serves merged metrics by mutual TLS: no listener takes it"},
		{Key: idleTimeout, Effect: "how long a connection may be idle if no policy says it; 0s: without limit", Fix: "write a " +
			"duration such as 4h, at most a year",
			asks: func(value string) bool { return parseTimeout(value) == 0 }},
		{Key: clientFiles.chain, Effect: "the path of a certificate; " + client},
		{Key: clientFiles.key, Effect: "the path of its key"},
		{Key: clientFiles.roots, Effect: "the path of the roots that servers are verified by; empty: those of the system"},
		{Key: serverFiles.chain, Effect: "the path of a certificate, which " + server + "; without TLS_SERVER_KEY it has no effect"},
		{Key: serverFiles.key, Effect: "the path of its key"},
		{Key: serverFiles.roots, Effect: "the path of the roots that clients are verified by, which " + server},
	}
}

func ineffective() []Field {
	const agent = "the agent and the bootstrap of Envoy use it; no configuration depends on it"
	const people = "for people who read it, and for EnvoyFilters that match it"
	yes := func(value string) bool { b, _ := strconv.ParseBool(value); return b }
	set := func(value string) bool { return value != "" }
	return []Field{
		{Key: "WORKLOAD_ENTRY", Reason: "the WorkloadEntry of a proxy has the proxy's name or its address, and reports of health " +
			"change only entries that are registered automatically", Fix: "set AUTO_REGISTER_GROUP if the health of the workload is to " +
			"be in its WorkloadEntry", asks: set},
		{Key: "ENABLE_HBONE", Reason: "no listener takes HBONE: ambient is not supported", Fix: "remove it", asks: yes},
		{Key: "DISABLE_HBONE_SEND", Reason: "no connection is made over HBONE"},
		{Key: "credential", Reason: "credentialNames are served by the control plane, and by no socket of the proxy's " +
			"host", Fix: "put the certificate in a Secret, or name its files", asks: yes},
		{Key: "file-credential", Reason: "certificates in files are served by the agent, and by no other socket of the proxy's " +
			"host", Fix: "use the agent's own socket", asks: yes},
		{Key: "POD_PORTS", Reason: "the ports of a workload are known from its Pod, its WorkloadEntry or its endpoints"},
		{Key: "DNS_PROXY_ADDR", Reason: "hosts outside the mesh are resolved by the name servers of the proxy's host, so that no name " +
			"leads back to an allocated address"},
		{Key: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", Reason: agent},
		{Key: "ENVOY_SKIP_DEPRECATED_LOGS", Reason: agent},
		{Key: "METADATA_DISCOVERY", Reason: agent},
		{Key: "WORKLOAD_IDENTITY_SOCKET_FILE", Reason: agent},
		{Key: "OUTLIER_LOG_PATH", Reason: agent},
		{Key: "PILOT_SAN", Reason: agent},
		{Key: "BASE", Reason: "nothing reads it, in istiod neither"},
		{Key: "CLOUDRUN_ADDR", Reason: "for a control plane that a cloud runs"},
		{Key: "STS_PORT", Reason: agent},
		{Key: "PLATFORM_METADATA", Reason: agent},
		{Key: "NAME", Reason: people + "; the name is in the id of the node"},
		{Key: "OWNER", Reason: people},
		{Key: "APP_CONTAINERS", Reason: people},
		{Key: "ISTIO_PROXY_SHA", Reason: people},
	}
}

// Notice is an entry of a proxy's metadata that has no effect although the proxy sets it.
type Notice struct{ Key, Value, Fix string }

// Notices returns the entries of the proxy's metadata without effect.
func (p *Proxy) Notices() (list []Notice) {
	sent := map[string]string{}
	for t := range p.Others.All {
		sent[t.Key] = t.Value
	}
	for _, f := range fields {
		if value := sent[f.Key]; f.asks != nil && value != "" && f.asks(value) {
			list = append(list, Notice{f.Key, value, f.Fix})
		}
	}
	lacks := func(key string, others ...string) {
		if value := sent[key]; value != "" {
			list = append(list, Notice{key, value, "set " + strings.Join(others, " and ") + ", too"})
		}
	}
	if p.ClientFiles.Chain == "" {
		lacks(clientFiles.chain, clientFiles.key)
		lacks(clientFiles.key, clientFiles.chain)
		lacks(clientFiles.roots, clientFiles.chain, clientFiles.key)
	}
	if p.ServerFiles.Chain == "" {
		lacks(serverFiles.chain, serverFiles.key)
		lacks(serverFiles.key, serverFiles.chain)
	}
	return list
}
