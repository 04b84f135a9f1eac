{{- /* The namespaces that the server is limited to, as a JSON array. Empty for all. */}}
{{- define "istiod.namespaces" -}}
{{- $watched := (.Values.env | default dict).ISTIO_WATCH_NAMESPACE }}
{{- toJson (ternary (uniq (list $watched .Release.Namespace)) list (not (empty $watched))) }}
{{- end }}

{{- /* "on" if the server removes the taint of nodes. */}}
{{- define "istiod.untaints" -}}
{{- $asked := include "istiod.asked" (dict "values" .Values "name" "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS") }}
{{- $said := hasKey (.Values.env | default dict) "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS" }}
{{- if or $asked (and (not $said) (.Values.taint).enabled) }}on{{ end }}
{{- end }}

{{- /* Rights to objects of namespaces. */}}
{{- define "istiod.rules.namespaces" -}}
{{- $register := include "istiod.on" (dict "values" .Values "name" "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION") }}
{{- $health := include "istiod.on" (dict "values" .Values "name" "PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS") }}
{{- $analysis := include "istiod.asked" (dict "values" .Values "name" "PILOT_ENABLE_ANALYSIS") }}
{{- $statuses := or $analysis (include "istiod.asked" (dict "values" .Values "name" "PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS")) -}}
# The configuration of the mesh.
- apiGroups: [networking.istio.io]
  resources:
    - destinationrules
    - envoyfilters
    - gateways
    - proxyconfigs
    - serviceentries
    - sidecars
    - virtualservices
    - workloadentries
    - workloadgroups
  verbs: [get, list, watch]
- apiGroups: [security.istio.io]
  resources: [authorizationpolicies, peerauthentications, requestauthentications]
  verbs: [get, list, watch]
- apiGroups: [telemetry.istio.io]
  resources: [telemetries]
  verbs: [get, list, watch]
- apiGroups: [extensions.istio.io]
  resources: [trafficextensions, wasmplugins]
  verbs: [get, list, watch]
# Ingresses, and the addresses in their status.
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses/status]
  verbs: [patch]
# The Gateway API.
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies
    - gateways
    - grpcroutes
    - httproutes
    - listenersets
    - referencegrants
    - tcproutes
    - tlsroutes
    - udproutes
  verbs: [get, list, watch]
{{- if include "istiod.on" (dict "values" .Values "name" "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER") }}
# Objects that the server deploys for Gateways, in their namespaces. Kubernetes deletes them with their Gateway; the
# server deletes those that parameters no longer ask for.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
# The statuses of the Gateway API's objects.
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies/status
    - gateways/status
    - grpcroutes/status
    - httproutes/status
    - listenersets/status
    - tcproutes/status
    - tlsroutes/status
    - udproutes/status
  verbs: [patch]
{{- if include "istiod.asked" (dict "values" .Values "name" "PILOT_ENABLE_ALPHA_GATEWAY_API") }}
# The alpha parts of the Gateway API.
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackendtrafficpolicies]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackendtrafficpolicies/status]
  verbs: [patch]
{{- end }}
# Services and their endpoints. Pods say which workload an endpoint is.
- apiGroups: [""]
  resources: [pods, services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- if include "istiod.asked" (dict "values" .Values "name" "ENABLE_MCS_SERVICE_DISCOVERY") }}
# What the cluster exports and imports.
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports, serviceimports]
  verbs: [get, list, watch]
{{- end }}
{{- if include "istiod.asked" (dict "values" .Values "name" "ENABLE_MCS_AUTO_EXPORT") }}
# A ServiceExport for each Service, in its namespace. Kubernetes deletes it with the Service.
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports]
  verbs: [get, list, watch, create]
{{- end }}
# Certificates of gateways: the server reads the Secrets and ConfigMaps that Gateways and DestinationRules name, one by
# one. RBAC cannot list names that are not known yet.
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
{{- if $statuses }}
# Findings about objects, and whether they are in force, in their status.
- apiGroups: [networking.istio.io]
  resources:
    - destinationrules/status
    - envoyfilters/status
    - gateways/status
    - proxyconfigs/status
    - serviceentries/status
    - sidecars/status
    - virtualservices/status
    - workloadentries/status
    - workloadgroups/status
  verbs: [patch]
- apiGroups: [security.istio.io]
  resources: [authorizationpolicies/status, peerauthentications/status, requestauthentications/status]
  verbs: [patch]
- apiGroups: [telemetry.istio.io]
  resources: [telemetries/status]
  verbs: [patch]
- apiGroups: [extensions.istio.io]
  resources: [trafficextensions/status, wasmplugins/status]
  verbs: [patch]
{{- end }}
{{- if $register }}
# Workloads outside Kubernetes get a WorkloadEntry in the namespace of their WorkloadGroup while their proxy is connected.
- apiGroups: [networking.istio.io]
  resources: [workloadentries]
  verbs: [create, patch, delete]
{{- if and $health (not $statuses) }}
# The health of such a workload, which its proxy reports.
- apiGroups: [networking.istio.io]
  resources: [workloadentries/status]
  verbs: [patch]
{{- end }}
{{- end }}
{{- if include "istiod.on" (dict "values" .Values "name" "ENABLE_CA_SERVER") }}
# The roots with which workloads verify certificates, in every namespace. RBAC cannot restrict a create by name.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "istiod.rootsMap" . }}, {{ include "istiod.crlMap" . }}]
  verbs: [list, watch, patch]
{{- end }}
{{- end }}
