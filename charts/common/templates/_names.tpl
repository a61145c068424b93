{{/* The prefix of all names of a release; also the name of what belongs to no single component. */}}
{{- define "multicluster.release" -}}
{{- (.Values.global).fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of a component's objects. */}}
{{- define "multicluster.fullname" -}}
{{- $release := include "multicluster.release" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if eq $release "multicluster-scheduler" -}}
multicluster-{{ .Chart.Name }}
{{- else if hasSuffix .Chart.Name $release -}}
{{- $release -}}
{{- else -}}
{{ $release }}-{{ .Chart.Name }}
{{- end -}}
{{- end -}}

{{/* The labels that select a component's pods, and no others. */}}
{{- define "multicluster.selector" -}}
app.kubernetes.io/name: multicluster-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Chart.Name }}
{{- end -}}

{{/* Labels of what belongs to no single component. */}}
{{- define "multicluster.releaseLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: multicluster-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: multicluster-scheduler
{{- end -}}

{{/* Labels of a component's objects. */}}
{{- define "multicluster.labels" -}}
{{ include "multicluster.releaseLabels" . }}
app.kubernetes.io/component: {{ .Chart.Name }}
{{- end -}}

{{/* Name, namespace and labels of a component's objects. */}}
{{- define "multicluster.metadata" -}}
name: {{ include "multicluster.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "multicluster.labels" . | nindent 2 }}
{{- end -}}

{{/* The same for what has no namespace. */}}
{{- define "multicluster.clusterMetadata" -}}
name: {{ include "multicluster.fullname" . }}
labels:
  {{- include "multicluster.labels" . | nindent 2 }}
{{- end -}}

{{/* registry/repository:tag@digest, without what is not set. */}}
{{- define "multicluster.image" -}}
{{- $global := (.Values.global).image | default dict -}}
{{- $registry := (.Values.global).registry | default "" | trimSuffix "/" -}}
{{- $repository := .Values.image.repository | default (printf "multicluster-%s" .Chart.Name) -}}
{{- $tag := .Values.image.tag | default $global.tag | default .Chart.AppVersion -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $repository }}:{{ $tag }}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
