{{- /*
The container's environment, with each name once, because a server-side apply refuses duplicates. envVarFrom wins over env,
and env over the chart's variables. Variables that others refer to, as $(POD_NAME), come first.
*/}}
{{- define "istiod.env" -}}
{{- $plain := dict "REVISION" (.Values.revision | default "default")
      "CLUSTER_ID" ((.Values.global.multiCluster).clusterName | default "Kubernetes")
      "PILOT_TRACE_SAMPLING" .Values.traceSampling }}
{{- with .Values.global.pilotCertProvider }}{{ $_ := set $plain "PILOT_CERT_PROVIDER" . }}{{ end }}
{{- with .Values.global.trustBundleName }}{{ $_ := set $plain "PILOT_CA_CERT_CONFIGMAP" . }}{{ end }}
{{- with .Values.crlConfigMapName }}{{ $_ := set $plain "PILOT_CRL_CONFIGMAP" . }}{{ end }}
{{- if (.Values.taint).enabled }}
{{- $_ := set $plain "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS" "true" }}
{{- with .Values.taint.name }}{{ $_ := set $plain "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME" . }}{{ end }}
{{- end }}
{{- if .Values.global.externalIstiod }}{{ $_ := set $plain "EXTERNAL_ISTIOD" "true" }}{{ end }}
{{- range $name, $value := .Values.env }}{{ $_ := set $plain $name $value }}{{ end }}
{{- if and (eq (toString (get $plain "COMPLIANCE_POLICY")) "fips-140-3") (not (hasKey $plain "GODEBUG")) }}
{{- $_ := set $plain "GODEBUG" "fips140=only" }}
{{- end }}
{{- $from := dict }}
{{- range .Values.envVarFrom }}{{ $_ := set $from .name .valueFrom }}{{ end }}
{{- $fields := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" "SERVICE_ACCOUNT" "spec.serviceAccountName" }}
{{- range $name, $field := $fields }}
{{- if not (or (hasKey $plain $name) (hasKey $from $name)) }}
- name: {{ $name }}
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: {{ $field }}
{{- end }}
{{- end }}
{{- range $name, $source := $from }}
- name: {{ $name }}
  valueFrom:
    {{- toYaml $source | nindent 4 }}
{{- end }}
{{- range $name, $value := $plain }}
{{- if not (hasKey $from $name) }}
- name: {{ $name }}
  value: {{ include "istiod.scalar" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The signers of Kubernetes that sign certificates, as a JSON array: EXTERNAL_CA for workloads, and the provider for the
server. */}}
{{- define "istiod.signers" -}}
{{- $env := .Values.env | default dict }}
{{- $signers := list }}
{{- if eq (toString $env.EXTERNAL_CA) "ISTIOD_RA_KUBERNETES_API" }}
{{- with $env.K8S_SIGNER }}{{ $signers = append $signers . }}{{ end }}
{{- with $env.CERT_SIGNER_DOMAIN }}{{ $signers = append $signers (print . "/*") }}{{ end }}
{{- end }}
{{- $provider := $env.PILOT_CERT_PROVIDER | default .Values.global.pilotCertProvider | default "" }}
{{- if hasPrefix "k8s.io/" $provider }}{{ $signers = append $signers (trimPrefix "k8s.io/" $provider) }}{{ end }}
{{- toJson (uniq (concat $signers (.Values.global.certSigners | default list))) }}
{{- end }}
