{{/* The Service of a component. root: the chart's context. ports: ports besides metrics, as YAML. */}}
{{- define "multicluster.service" -}}
{{- $root := .root -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "multicluster.metadata" $root | nindent 2 }}
  {{- with $root.Values.metrics.serviceAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    {{- include "multicluster.selector" $root | nindent 4 }}
  ports:
    {{- with .ports }}
    {{- . | trim | nindent 4 }}
    {{- end }}
    - name: metrics
      port: 8080
      targetPort: metrics
      protocol: TCP
{{- end -}}

{{/*
What may reach a component. root: the chart's context. ports: ports open to everybody, as a list.
range: first and count of numbers of ports open to everybody.
*/}}
{{- define "multicluster.networkpolicy" -}}
{{- $root := .root -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "multicluster.metadata" $root | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "multicluster.selector" $root | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- range .ports }}
    # The API server calls it, from addresses that no selector describes.
    - ports:
        - port: {{ . }}
          protocol: TCP
    {{- end }}
    {{- with .range }}
    {{- if gt .count 1 }}
    # The API server calls a port for each virtual node.
    - ports:
        - port: {{ .first }}
          endPort: {{ sub (add .first .count) 1 }}
          protocol: TCP
    {{- end }}
    {{- end }}
    # Probes come from the node, metrics are read by whom the values name.
    - ports:
        - port: metrics
          protocol: TCP
      {{- with $root.Values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{/* For the Prometheus operator. */}}
{{- define "multicluster.servicemonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
    {{- with .Values.metrics.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "multicluster.selector" . | nindent 6 }}
  endpoints:
    - port: metrics
      interval: {{ .Values.metrics.serviceMonitor.interval }}
{{- end -}}
