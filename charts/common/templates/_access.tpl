{{/* A component's own ServiceAccount. Its token is mounted by the pod alone. */}}
{{- define "multicluster.serviceaccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}

{{/* Binds the ClusterRole of the component's name to its ServiceAccount. */}}
{{- define "multicluster.clusterrolebinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "multicluster.clusterMetadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "multicluster.fullname" . }}
subjects:
  {{- include "multicluster.subject" . | nindent 2 }}
{{- end -}}

{{/* Binds the Role of the component's name in the release's namespace to its ServiceAccount. */}}
{{- define "multicluster.rolebinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "multicluster.fullname" . }}
subjects:
  {{- include "multicluster.subject" . | nindent 2 }}
{{- end -}}

{{- define "multicluster.subject" -}}
- kind: ServiceAccount
  name: {{ include "multicluster.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* The Role, and its binding, with which replicas agree on a leader. */}}
{{- define "multicluster.lease" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
rules:
  # The first replica creates the Lease; a rule for creation cannot name it.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  # Replicas read who leads, and the leader renews and releases.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [multicluster-{{ .Chart.Name }}]
    verbs: [get, patch]
---
{{ include "multicluster.rolebinding" . }}
{{- end -}}

{{/* The Role, and its binding, with which replicas share work. */}}
{{- define "multicluster.members" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
rules:
  # Each replica renews a Lease named after its pod, which no rule can name, sees those of the others, and removes what
  # replicas that are gone left behind.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [get, list, watch, create, patch, delete]
---
{{ include "multicluster.rolebinding" . }}
{{- end -}}
