{{- /* The values that injection templates read, as JSON. Users' templates may read more than those of this chart. */}}
{{- define "istiod.injectionValues" -}}
{{- $global := deepCopy .Values.global }}
{{- $_ := set $global "tag" ($global.tag | default (regexReplaceAll "-lite.*" .Chart.AppVersion "") | toString) }}
{{- $_ := set $global "istioNamespace" (coalesce .Values.global.istioNamespace .Release.Namespace) }}
{{- $_ := set $global "trustBundleName" (include "istiod.rootsMap" .) }}
{{- /* With a signer of Kubernetes, the server publishes the signer's roots where the roots of its own CA would be. */}}
{{- $provider := $global.pilotCertProvider | default "istiod" }}
{{- $_ := set $global "pilotCertProvider" (ternary "istiod" $provider (hasPrefix "k8s.io/" $provider)) }}
{{- toJson (dict "global" $global "revision" .Values.revision "gateways" (.Values.gateways | default dict)
      "pilot" (dict "cni" .Values.cni "env" (.Values.env | default dict) "crlConfigMapName" (include "istiod.crlMap" .))
      "sidecarInjectorWebhook" (omit .Values.sidecarInjectorWebhook "templates")) }}
{{- end }}

{{- /*
The configuration of the injection webhook, for a name of the control plane: its revision or a tag. No two of its webhooks
select the same pod, so the API server calls at most one of them.
*/}}
{{- define "istiod.injectionWebhooks" -}}
{{- $name := .name }}
{{- $named := dict "key" "istio.io/rev" "operator" "In" "values" (list $name) }}
{{- $unnamed := dict "key" "istio.io/rev" "operator" "DoesNotExist" }}
{{- $silent := dict "key" "istio-injection" "operator" "DoesNotExist" }}
{{- $enabled := dict "key" "istio-injection" "operator" "In" "values" (list "enabled") }}
{{- $allowed := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") }}
{{- $wanted := dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true") }}
{{- $open := dict "key" "sidecar.istio.io/inject" "operator" "DoesNotExist" }}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease" "local-path-storage") }}
{{- /* The namespace names the revision, or the pod does in a namespace that names none. */}}
{{- template "istiod.injectionWebhook" dict "root" .root "name" "rev.namespace" "namespace" (list $named $silent) "object" (list $allowed) }}
{{- template "istiod.injectionWebhook" dict "root" .root "name" "rev.object" "namespace" (list $unnamed $silent) "object" (list $allowed $named) }}
{{- if eq $name "default" }}
{{- /* The namespace is labelled for injection; the pod is, and neither names a revision; or neither has a label. */}}
{{- template "istiod.injectionWebhook" dict "root" .root "name" "namespace" "namespace" (list $enabled) "object" (list $allowed) }}
{{- template "istiod.injectionWebhook" dict "root" .root "name" "object" "namespace" (list $silent $unnamed) "object" (list $wanted $unnamed) }}
{{- if .root.Values.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{- template "istiod.injectionWebhook" dict "root" .root "name" "auto" "namespace" (list $silent $unnamed $system) "object" (list $open $unnamed) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The server writes the caBundle. Upgrades do not reset a field that the release does not set. */}}
{{- define "istiod.injectionWebhook" }}
- name: {{ .name }}.sidecar-injector.istio.io
  clientConfig:
    {{- with .root.Values.istiodRemote.injectionURL }}
    url: {{ . | quote }}
    {{- else }}
    service:
      name: {{ include "istiod.name" .root }}
      namespace: {{ .root.Release.Namespace }}
      path: {{ .root.Values.istiodRemote.injectionPath | default "/inject" }}
      port: 443
    {{- end }}
    {{- with .root.Values.istiodRemote.injectionCABundle }}
    caBundle: {{ . | quote }}
    {{- end }}
  sideEffects: None
  admissionReviewVersions: [v1, v1beta1]
  failurePolicy: Fail
  reinvocationPolicy: {{ .root.Values.sidecarInjectorWebhook.reinvocationPolicy }}
  timeoutSeconds: 5
  rules:
    - operations: [CREATE]
      apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
  namespaceSelector:
    matchExpressions:
      {{- toYaml .namespace | nindent 6 }}
  objectSelector:
    matchExpressions:
      {{- toYaml .object | nindent 6 }}
{{- end }}

{{- /* The names of the webhook configurations whose caBundles the server writes, as a JSON object of arrays. */}}
{{- define "istiod.webhookNames" -}}
{{- $suffix := ternary "" (print "-" .Release.Namespace) (eq .Release.Namespace "istio-system") }}
{{- $mutating := list (print "istio-sidecar-injector" (include "istiod.suffix" .) $suffix) }}
{{- range .Values.revisionTags }}{{ $mutating = append $mutating (print "istio-revision-tag-" . $suffix) }}{{ end }}
{{- $validating := list }}
{{- if .Values.global.configValidation }}{{ $validating = list (printf "istio-validator%s-%s" (include "istiod.suffix" .) .Release.Namespace) "istiod-default-validator" }}{{ end }}
{{- toJson (dict "mutating" $mutating "validating" $validating) }}
{{- end }}

{{- /*
The failurePolicy that the values say, or that the named ValidatingWebhookConfiguration has in the cluster; Ignore where
there is none. With roots in the values the webhook is expected to work from the start.
*/}}
{{- define "istiod.failurePolicy" -}}
{{- $policy := "Ignore" }}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" .name).webhooks }}{{ $policy = .failurePolicy }}{{ end }}
{{- ternary "Fail" (.root.Values.base.validationFailurePolicy | default $policy) (not (empty .root.Values.base.validationCABundle)) }}
{{- end }}
