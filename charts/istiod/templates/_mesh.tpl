{{- /* The mesh configuration: what the user wrote, and under it what this release knows. */}}
{{- define "istiod.mesh" -}}
{{- $known := dict "rootNamespace" (include "istiod.rootNamespace" .) }}
{{- $proxy := dict "discoveryAddress" (printf "%s.%s.svc:15012" (include "istiod.name" .) .Release.Namespace) }}
{{- with .Values.global.meshID }}{{ $_ := set $proxy "meshId" . }}{{ end }}
{{- with coalesce .Values.variant .Values.global.variant }}{{ $_ := set $proxy "image" (dict "imageType" .) }}{{ end }}
{{- $_ := set $known "defaultConfig" $proxy }}
{{- if and (.Values.telemetry).enabled ((.Values.telemetry).v2).enabled (((.Values.telemetry).v2).prometheus).enabled }}
{{- $_ := set $known "defaultProviders" (dict "metrics" (list "prometheus")) }}
{{- end }}
{{- include "istiod.overlay" (dict "to" $known "from" (deepCopy (.Values.meshConfig | default dict))) }}
{{- toYaml $known }}
{{- end }}
