{{/* The Secret that the webhook makes for its authority, its certificate and its key. */}}
{{- define "webhook.secret" -}}
{{ include "multicluster.fullname" . }}-cert
{{- end -}}

{{/* The Secret that cert-manager makes. */}}
{{- define "webhook.certManagerSecret" -}}
{{ include "multicluster.fullname" . }}-tls
{{- end -}}

{{/* webhook.reinvocationPolicy is how older releases called it. */}}
{{- define "webhook.reinvocationPolicy" -}}
{{ .Values.reinvocationPolicy | default .Values.config.reinvocationPolicy }}
{{- end -}}

{{- define "webhook.ports" -}}
- name: webhook
  containerPort: 9443
  protocol: TCP
{{- end -}}

{{- define "webhook.servicePorts" -}}
- name: webhook
  port: 443
  targetPort: webhook
  protocol: TCP
{{- end -}}

{{/* Endpoints leave before the process does. */}}
{{- define "webhook.lifecycle" -}}
preStop:
  sleep:
    seconds: 4
{{- end -}}

{{- define "webhook.volumeMounts" -}}
- name: certificate
  mountPath: /var/run/multicluster/certificate
  readOnly: true
{{- end -}}

{{- define "webhook.volumes" -}}
- name: certificate
  secret:
    secretName: {{ include "webhook.certManagerSecret" . }}
{{- end -}}

{{/* Name and labels of the configurations, which the webhook patches by name. */}}
{{- define "webhook.configurationMetadata" -}}
{{ include "multicluster.clusterMetadata" . }}
{{- if .Values.config.certManager.enabled }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "multicluster.fullname" . }}
{{- end }}
{{- end -}}

{{/* How the API server reaches the webhook; whoever makes the certificate adds the caBundle. */}}
{{- define "webhook.client" -}}
clientConfig:
  service:
    name: {{ include "multicluster.fullname" .root }}
    namespace: {{ .root.Release.Namespace }}
    path: {{ .path }}
    port: 443
admissionReviewVersions: [v1]
sideEffects: None
failurePolicy: {{ .failurePolicy | default .root.Values.config.failurePolicy }}
timeoutSeconds: {{ .root.Values.config.timeoutSeconds }}
matchPolicy: Equivalent
{{- end -}}

{{- define "webhook.pods" -}}
- apiGroups: [""]
  apiVersions: [v1]
  resources: [pods]
  operations: [CREATE]
  scope: Namespaced
{{- end -}}

{{/* Never the namespaces that the cluster or the webhook itself needs to start. */}}
{{- define "webhook.notExcluded" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- uniq (append .Values.config.excludedNamespaces .Release.Namespace) | toYaml | nindent 4 }}
{{- end -}}

{{/* What forged keys could do harm is checked everywhere but where the cluster and the webhook start. */}}
{{- define "webhook.notSystem" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- uniq (list "kube-system" .Release.Namespace) | toYaml | nindent 4 }}
{{- end -}}

{{- define "webhook.enabled" -}}
- key: multicluster-scheduler
  operator: In
  values: [enabled]
{{- end -}}

{{- define "webhook.electsAll" -}}
- key: multicluster.admiralty.io/elect
  operator: {{ . }}
  values: [all]
{{- end -}}
