{{- /*
The container's environment, no name twice, for a server-side apply refuses that: envVarFrom wins over env, and env over the chart's own. What a value may refer
to, as $(POD_NAME), stands before it.
*/}}
{{- define "istiod.env" -}}
{{- $plain := dict "REVISION" (.Values.revision | default "default")
      "CLUSTER_ID" ((.Values.global.multiCluster).clusterName | default "Kubernetes")
      "PILOT_TRACE_SAMPLING" .Values.traceSampling }}
{{- with .Values.global.pilotCertProvider }}{{ $_ := set $plain "PILOT_CERT_PROVIDER" . }}{{ end }}
{{- range $name, $value := .Values.env }}{{ $_ := set $plain $name $value }}{{ end }}
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
