{{- /*
Refuses names below global that no chart of a mesh has. The values there are for all charts of a mesh, so each chart has
this file. In a parent chart global may have more names, which are the parent's.
*/}}
{{- define "mesh.global" -}}
{{- if .Chart.IsRoot }}
{{- $known := list
      "agentgateway" "arch" "caAddress" "caName" "certSigners" "certificates" "compatibilityVersion"
      "configCluster" "configValidation" "defaultNodeSelector" "defaultPodDisruptionBudget" "defaultResources"
      "defaultTolerations" "enableReaderRBAC" "externalIstiod" "hub" "imagePullPolicy" "imagePullSecrets"
      "ipFamilies" "ipFamilyPolicy" "istioNamespace" "istiod" "jwtPolicy" "logAsJson" "logging" "meshConfig"
      "meshID" "meshNetworks" "mountMtlsCerts" "multiCluster" "nativeNftables" "network" "networkPolicy"
      "omitSidecarInjectorConfigMap" "operatorManageWebhooks" "pilotCertProvider" "platform"
      "podDNSSearchNamespaces" "priorityClassName" "profile" "proxy" "proxy_init" "readerServiceAccount"
      "remotePilotAddress" "resourceScope" "revision" "sds" "sts" "tag" "tracer" "trustBundleName" "trustDomain"
      "variant" "waypoint" }}
{{- range $name, $_ := .Values.global }}
{{- if not (has $name $known) }}
{{- fail (printf "global.%s: no chart of a mesh has this value: leave it out, or correct its name" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* "on" if global.resourceScope includes the objects of a scope: "cluster" or "namespace". */}}
{{- define "mesh.installs" -}}
{{- if has (.values.global.resourceScope | default "all") (list "all" .scope) }}on{{ end }}
{{- end }}
