{{- /* The mesh configuration: defaults of this release, overlaid with the user's values. */}}
{{- define "istiod.mesh" -}}
{{- $known := dict "rootNamespace" (include "istiod.rootNamespace" .) }}
{{- $proxy := dict "discoveryAddress" (printf "%s.%s.svc:15012" (include "istiod.name" .) .Release.Namespace) }}
{{- with .Values.global.meshID }}{{ $_ := set $proxy "meshId" . }}{{ end }}
{{- with coalesce .Values.global.proxy.variant .Values.global.variant }}{{ $_ := set $proxy "image" (dict "imageType" .) }}{{ end }}
{{- with include "istiod.tracing" . | fromYaml }}{{ $_ := set $proxy "tracing" . }}{{ end }}
{{- $_ := set $known "defaultConfig" $proxy }}
{{- if and (.Values.telemetry).enabled ((.Values.telemetry).v2).enabled }}
{{- $metrics := list }}
{{- if ((.Values.telemetry.v2).prometheus).enabled }}{{ $metrics = append $metrics "prometheus" }}{{ end }}
{{- $providers := dict }}
{{- if ((.Values.telemetry.v2).stackdriver).enabled }}
{{- $metrics = append $metrics "stackdriver" }}
{{- $_ := set $providers "accessLogging" (list "stackdriver") }}
{{- end }}
{{- with $metrics }}{{ $_ := set $providers "metrics" . }}{{ end }}
{{- with $providers }}{{ $_ := set $known "defaultProviders" . }}{{ end }}
{{- end }}
{{- include "istiod.overlay" (dict "to" $known "from" (deepCopy (.Values.meshConfig | default dict))) }}
{{- toYaml $known }}
{{- end }}

{{- /* The tracer of proxies, in the older form without providers. */}}
{{- define "istiod.tracing" -}}
{{- $tracers := .Values.global.tracer | default dict }}
{{- $tracer := .Values.global.proxy.tracer | default "none" }}
{{- $own := get $tracers $tracer | default dict }}
{{- if eq $tracer "zipkin" }}
{{- toYaml (dict "zipkin" (dict "address" ($own.address | default (printf "zipkin.%s:9411" (coalesce .Values.global.istioNamespace .Release.Namespace))))) }}
{{- else if eq $tracer "lightstep" }}
{{- toYaml (dict "lightstep" (dict "address" $own.address "accessToken" $own.accessToken)) }}
{{- else if eq $tracer "datadog" }}
{{- toYaml (dict "datadog" (dict "address" ($own.address | default "$(HOST_IP):8126"))) }}
{{- else if eq $tracer "stackdriver" }}
{{- $most := dict "debug" ($own.debug | default false) }}
{{- range $name := list "maxNumberOfAttributes" "maxNumberOfAnnotations" "maxNumberOfMessageEvents" }}
{{- $_ := set $most $name (get $own $name | default 200 | int) }}
{{- end }}
{{- toYaml (dict "stackdriver" $most) }}
{{- else if ne $tracer "none" }}
{{- fail (printf "global.proxy.tracer: %q is no tracer: write zipkin, lightstep, datadog, stackdriver or none" $tracer) }}
{{- end }}
{{- end }}
