{{- /*
Policies of API servers, which refuse objects and fields of Istio's API that are not stable: kinds that change what Envoy
is sent directly, and experimental fields. "name" names them, and "match" may select objects by their labels. This file is
the same in the charts base and istiod.
*/}}
{{- define "mesh.stablePolicy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}.istio.io
  labels:
    {{- .labels | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [security.istio.io, networking.istio.io, telemetry.istio.io, extensions.istio.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: ["*"]
    {{- with .match }}
    objectSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  validations:
    - expression: "!(object.kind in ['EnvoyFilter', 'ProxyConfig', 'WasmPlugin'])"
      messageExpression: "object.kind + ' is not a stable kind of Istio: experimental.stableValidationPolicy refuses it'"
    {{- range $kind, $fields := dict
          "accessLogging" (list "filter")
          "metrics" (list "reportingInterval")
          "tracing" (list "useRequestIdForTraceSampling") }}
    {{- range $fields }}
    - expression: >-
        object.kind != 'Telemetry' || !has(object.spec) || !has(object.spec.{{ $kind }}) ||
        !object.spec.{{ $kind }}.exists(x, has(x.{{ . }}))
      message: "{{ $kind }}.{{ . }} is not a stable field of Telemetry: experimental.stableValidationPolicy refuses it"
    {{- end }}
    {{- end }}
    {{- range list "trustDomains" "notTrustDomains" }}
    - expression: >-
        object.kind != 'AuthorizationPolicy' || !has(object.spec) || !has(object.spec.rules) ||
        !object.spec.rules.exists(r, has(r.from) && r.from.exists(f, has(f.source) && has(f.source.{{ . }})))
      message: "source.{{ . }} is not a stable field of AuthorizationPolicy: experimental.stableValidationPolicy refuses it"
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}-binding.istio.io
  labels:
    {{- .labels | nindent 4 }}
spec:
  policyName: {{ .name }}.istio.io
  validationActions: [Deny]
{{- end }}
