{{- /*
Every template starts with this: values under "pilot" (as in `--set pilot.env.X=Y`) are the same values at the top, and win. Once done it changes nothing more.
*/}}
{{- define "istiod.start" -}}
{{- with .Values.pilot }}{{ include "istiod.overlay" (dict "to" $.Values "from" .) }}{{ end }}
{{- end }}

{{- /* Puts one map over another, in place. Unlike mergeOverwrite it lets false, 0 and "" win too. */}}
{{- define "istiod.overlay" -}}
{{- $to := .to }}
{{- range $key, $value := .from }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $to $key)) }}{{ include "istiod.overlay" (dict "to" (get $to $key) "from" $value) }}
{{- else }}{{ $_ := set $to $key $value }}{{ end }}
{{- end }}
{{- end }}

{{- /* "-canary" for the revision canary; nothing for the default one. */}}
{{- define "istiod.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "istiod.name" -}}istiod{{ include "istiod.suffix" . }}{{- end }}

{{- define "istiod.rootNamespace" -}}
{{- coalesce (.Values.meshConfig | default dict).rootNamespace .Values.global.istioNamespace .Release.Namespace }}
{{- end }}

{{- /* What selects the pods. It can never change in a Deployment, and is what Istio's own chart has, so that a release of it can be upgraded to this one. */}}
{{- define "istiod.selector" -}}
{{- if .Values.revision -}}
app: istiod
istio.io/rev: {{ .Values.revision | quote }}
{{- else -}}
istio: pilot
{{- end }}
{{- end }}

{{- define "istiod.labels" -}}
app: istiod
istio.io/rev: {{ .Values.revision | default "default" | quote }}
operator.istio.io/component: Pilot
release: {{ .Release.Name }}
app.kubernetes.io/name: istiod
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: istio
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "istiod.image" -}}
{{- if contains "/" .Values.image }}{{ .Values.image }}
{{- else if not .Values.hub }}{{ fail "hub is empty: give the registry and path of this control plane's image; Istio's own, image: pilot, is another program" }}
{{- else }}{{ .Values.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion | toString }}{{ end }}
{{- end }}

{{- /* A number as people write it: Helm reads 1000000 as a float and would print 1e+06. */}}
{{- define "istiod.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- define "istiod.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* "on" where env has that variable as true, in one of the ways that the server reads. */}}
{{- define "istiod.asked" -}}
{{- if has (toString (get (.values.env | default dict) .name)) (list "true" "True" "TRUE" "t" "T" "1") }}on{{ end }}
{{- end }}

{{- /* "on" unless env has that variable as false, in one of the ways that the server reads: what is switched off needs no rights. */}}
{{- define "istiod.on" -}}
{{- if not (has (toString (get (.values.env | default dict) .name)) (list "false" "False" "FALSE" "f" "F" "0")) }}on{{ end }}
{{- end }}
