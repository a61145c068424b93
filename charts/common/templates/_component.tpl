{{/*
All objects of a component but its permissions.

root: the chart's context. args: the component's own flags, as a list. leaderElect: whether replicas elect a leader.
env, ports, lifecycle, volumes, volumeMounts: more of them for the container and its pod, as YAML.
servicePorts: ports of the Service besides metrics, as YAML. openPorts: names of ports that everybody may reach.
openRange: first and count of numbers of ports that everybody may reach.
*/}}
{{- define "multicluster.component" -}}
{{- $root := .root -}}
{{ include "multicluster.serviceaccount" $root }}
---
{{ include "multicluster.deployment" . }}
---
{{ include "multicluster.service" (dict "root" $root "ports" .servicePorts) }}
{{- if $root.Values.pdb.enabled }}
---
{{ include "multicluster.pdb" $root }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
{{ include "multicluster.networkpolicy" (dict "root" $root "ports" .openPorts "range" .openRange) }}
{{- end }}
{{- if $root.Values.metrics.serviceMonitor.enabled }}
---
{{ include "multicluster.servicemonitor" $root }}
{{- end }}
{{- end -}}
