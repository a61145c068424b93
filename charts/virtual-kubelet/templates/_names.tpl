{{/* The port of the first virtual node; those of others follow it. */}}
{{- define "virtual-kubelet.ports" -}}
- name: kubelet
  containerPort: {{ int .Values.config.kubelet.port }}
  protocol: TCP
{{- end -}}
