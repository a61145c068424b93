{{/*
Values of older releases: one line for each that is set and no longer understood, with what takes its place.
Accepted without a word: clusterName, sourceController.enabled, webhook.reinvocationPolicy, and defaults.
*/}}
{{- define "multicluster-scheduler.older" -}}
{{- $values := .Values -}}
{{- $groups := dict
  "controllerManager" (list "webhook" "feedback-controller" "follow-controller" "virtual-kubelet" "chaperon-controller" "source-controller")
  "scheduler" (list "proxy-scheduler" "candidate-scheduler")
-}}
{{- $same := list "replicas" "image" "resources" "nodeSelector" "affinity" "tolerations" -}}
{{- $all := dict "image" "global.registry and global.image.tag" "nodeSelector" "global.nodeSelector" "tolerations" "global.tolerations" -}}
{{- range $group, $components := $groups -}}
{{- range $key, $value := index $values $group | default dict -}}
{{- if has $key $same }}
{{ $group }}.{{ $key }}: set {{ range $i, $name := $components }}{{ if $i }}, {{ end }}{{ $name }}.{{ $key }}{{ end }}{{ with get $all $key }}, or for all components {{ . }}{{ end }}
{{- else if eq $key "securityContext" }}
{{ $group }}.securityContext: remove it; pods run as non-root, read-only and without capabilities
{{- else if eq $key "certificateSignerName" }}
{{ $group }}.certificateSignerName: set virtual-kubelet.config.kubelet.signerName to {{ $value }}
{{- else }}
{{ $group }}.{{ $key }}: remove it; it has no counterpart
{{- end -}}
{{- end -}}
{{- end -}}
{{- $debug := $values.debug | default dict -}}
{{- if $debug.controllerManager }}
debug.controllerManager: set enabled to false for webhook.enabled, feedback-controller.enabled, follow-controller.enabled, virtual-kubelet.enabled, chaperon-controller.enabled and source-controller.enabled
{{- end -}}
{{- if $debug.proxyScheduler }}
debug.proxyScheduler: set proxy-scheduler.enabled to false
{{- end -}}
{{- if $debug.candidateScheduler }}
debug.candidateScheduler: set candidate-scheduler.enabled to false
{{- end -}}
{{- if $debug.restarter }}
debug.restarter: remove it; there is no restarter, components follow Targets as they change
{{- end -}}
{{- if $values.restarter }}
restarter: remove it; there is no restarter, components follow Targets as they change
{{- end -}}
{{- if $values.postDeleteJob }}
postDeleteJob: remove it; this release has no job after its deletion
{{- end -}}
{{- if $values.imagePullSecretName }}
imagePullSecretName: set global.imagePullSecrets to [{name: {{ $values.imagePullSecretName }}}]
{{- end -}}
{{- if $values.nameOverride }}
nameOverride: remove it; names follow global.fullnameOverride, and the label app.kubernetes.io/name is fixed
{{- end -}}
{{- if $values.fullnameOverride }}
fullnameOverride: set global.fullnameOverride to {{ $values.fullnameOverride }}
{{- end -}}
{{- range $target := $values.targets | default list }}
targets: {{ $target.name }}: apply a {{ if $target.namespaced }}Target in the namespace that it serves{{ else }}ClusterTarget{{ end }}, name {{ $target.name }}, whose spec.kubeconfigSecret names Secret {{ $target.secretName | default $target.serviceAccountImportName }}; Targets are objects and no longer values
{{- end -}}
{{- if $values.targetSelf }}
targetSelf: apply a ClusterTarget with spec.self: true; Targets are objects and no longer values
{{- end -}}
{{- end -}}
