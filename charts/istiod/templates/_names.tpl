{{- /*
Every template starts with this. It moves values under "pilot" (as in `--set pilot.env.X=Y`) to the top, where they win.
Further calls change nothing.
*/}}
{{- define "istiod.start" -}}
{{- include "mesh.global" . }}
{{- with .Values.pilot }}{{ include "istiod.overlay" (dict "to" $.Values "from" .) }}{{ end }}
{{- if and (.Values.global.istiod).enableAnalysis (not (hasKey (.Values.env | default dict) "PILOT_ENABLE_ANALYSIS")) }}
{{- $_ := set .Values "env" (merge (dict "PILOT_ENABLE_ANALYSIS" "true") (.Values.env | default dict)) }}
{{- end }}
{{- include "istiod.platform" . }}
{{- end }}

{{- /* Defaults of a platform. OpenShift refuses privileged init containers, so a plugin of Multus writes the traffic rules
there. */}}
{{- define "istiod.platform" -}}
{{- $platform := coalesce .Values.platform .Values.global.platform | default "" }}
{{- if not (has $platform (list "" "gke" "k3d" "k3s" "microk8s" "minikube" "openshift")) }}
{{- fail (printf "platform: %q is not known: write gke, k3d, k3s, microk8s, minikube or openshift" $platform) }}
{{- end }}
{{- $openshift := eq $platform "openshift" }}
{{- $cni := .Values.cni | default dict }}
{{- if kindIs "invalid" $cni.enabled }}{{ $_ := set $cni "enabled" $openshift }}{{ end }}
{{- if not $cni.provider }}{{ $_ := set $cni "provider" (ternary "multus" "default" $openshift) }}{{ end }}
{{- $_ := set .Values "cni" $cni }}
{{- if and $openshift (not .Values.terminationMessagePolicy) }}{{ $_ := set .Values "terminationMessagePolicy" "FallbackToLogsOnError" }}{{ end }}
{{- end }}

{{- /* The ConfigMaps that the server writes in each namespace: the roots of its CA, and the revoked certificates. */}}
{{- define "istiod.rootsMap" -}}
{{- coalesce (.Values.env | default dict).PILOT_CA_CERT_CONFIGMAP .Values.global.trustBundleName "istio-ca-root-cert" }}
{{- end }}
{{- define "istiod.crlMap" -}}
{{- coalesce (.Values.env | default dict).PILOT_CRL_CONFIGMAP .Values.crlConfigMapName "istio-ca-crl" }}
{{- end }}

{{- /* The ClusterTrustBundle that the server writes instead with env.ENABLE_CLUSTER_TRUST_BUNDLE_API, or nothing. */}}
{{- define "istiod.trustBundle" -}}
{{- if include "istiod.asked" (dict "values" .Values "name" "ENABLE_CLUSTER_TRUST_BUNDLE_API") }}
{{- $roots := include "istiod.rootsMap" . }}
{{- print "istio.io:istiod-ca:" (ternary "root-cert" $roots (eq $roots "istio-ca-root-cert")) }}
{{- end }}
{{- end }}

{{- /* The Leases for replacing the root, and for publishing it if the ConfigMaps have other names, as a JSON array. */}}
{{- define "istiod.rootsLeases" -}}
{{- $lease := "istio-namespace-controller-election" }}
{{- $maps := printf "%s-%s" (include "istiod.rootsMap" .) (include "istiod.crlMap" .) }}
{{- toJson (ternary (list $lease) (list $lease (printf "%s-%s" $lease $maps)) (eq $maps "istio-ca-root-cert-istio-ca-crl")) }}
{{- end }}

{{- /* Overlays one map with another, in place. Unlike with mergeOverwrite, false, 0 and "" win too. */}}
{{- define "istiod.overlay" -}}
{{- $to := .to }}
{{- range $key, $value := .from }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $to $key)) }}{{ include "istiod.overlay" (dict "to" (get $to $key) "from" $value) }}
{{- else }}{{ $_ := set $to $key $value }}{{ end }}
{{- end }}
{{- end }}

{{- /* "-canary" for the revision canary, and nothing for the default revision. */}}
{{- define "istiod.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "istiod.name" -}}istiod{{ include "istiod.suffix" . }}{{- end }}

{{- define "istiod.rootNamespace" -}}
{{- coalesce (.Values.meshConfig | default dict).rootNamespace .Values.global.istioNamespace .Release.Namespace }}
{{- end }}

{{- /* The selector of the pods. It cannot change in a Deployment. It equals that of Istio's chart, so that a release of
Istio's chart can be upgraded to this one. */}}
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
{{- $istio := "^((docker\\.io|gcr\\.io|ghcr\\.io|registry\\.istio\\.io|quay\\.io)/)?(istio|istio-release|istio-testing|release|testing)(/|$)" }}
{{- if contains "/" .Values.image }}
{{- if regexMatch $istio .Values.image }}{{ fail (printf "image: %s is Istio's own control plane, which is another program: leave it out, or name an image of istiod-lite" .Values.image) }}{{ end }}
{{- .Values.image }}
{{- else if eq .Values.image "pilot" }}{{ fail "image: pilot is Istio's own control plane, which is another program: leave it out" }}
{{- else if regexMatch $istio (.Values.hub | default "") }}{{ fail (printf "hub: %s has Istio's own control plane, which is another program: leave hub out, or give the registry and path of istiod-lite; the hub of proxies is global.hub" .Values.hub) }}
{{- else if not .Values.hub }}{{ fail "hub is empty: give the registry and path of this control plane's image; Istio's own, image: pilot, is another program" }}
{{- else }}{{ .Values.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion | toString }}{{ end }}
{{- end }}

{{- /* A number in plain form: Helm reads 1000000 as a float and would print 1e+06. */}}
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

{{- /* "on" if the variable is true in env, in any form that the server reads. */}}
{{- define "istiod.asked" -}}
{{- if has (toString (get (.values.env | default dict) .name)) (list "true" "True" "TRUE" "t" "T" "1") }}on{{ end }}
{{- end }}

{{- /* "on" unless the variable is false in env, in any form that the server reads. A feature that is off needs no rights. */}}
{{- define "istiod.on" -}}
{{- if not (has (toString (get (.values.env | default dict) .name)) (list "false" "False" "FALSE" "f" "F" "0")) }}on{{ end }}
{{- end }}

{{- /* The limit of the PodDisruptionBudget, which may have only one: maxUnavailable comes before minAvailable. */}}
{{- define "istiod.budget" -}}
{{- $budget := merge (deepCopy (.Values.podDisruptionBudget | default dict)) (.Values.pdb | default dict) }}
{{- range $limit := list "minAvailable" "maxUnavailable" }}
{{- if kindIs "invalid" (get $budget $limit) }}{{ $budget = omit $budget $limit }}{{ end }}
{{- end }}
{{- if hasKey $budget "maxUnavailable" }}{{ $budget = omit $budget "minAvailable" }}
{{- else if not (hasKey $budget "minAvailable") }}{{ $budget = merge $budget (dict "maxUnavailable" 1) }}{{ end }}
{{- toYaml $budget }}
{{- end }}
