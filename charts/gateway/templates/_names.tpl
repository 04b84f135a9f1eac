{{- define "gateway.name" -}}{{ .Values.name | default .Release.Name | trunc 53 | trimSuffix "-" }}{{- end }}

{{- define "gateway.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gateway.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* The labels by which this chart and Gateways select the pods. */}}
{{- define "gateway.selector" -}}
app: {{ (.Values.labels | default dict).app | default (include "gateway.name" .) | quote }}
istio: {{ (.Values.labels | default dict).istio | default (include "gateway.name" . | trimPrefix "istio-") | quote }}
{{- end }}

{{- define "gateway.labels" -}}
{{- with merge (omit (.Values.labels | default dict) "app" "istio") (dict "istio.io/dataplane-mode" "none") }}{{ toYaml . }}
{{ end }}
{{- include "gateway.selector" . }}
{{- with .Values.networkGateway }}
topology.istio.io/network: {{ . | quote }}
{{- end }}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: istio
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* A number in plain form: Helm reads 1000000 as a float and would print 1e+06. */}}
{{- define "gateway.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}
