{{/* The ClusterRoles that a source is bound to. */}}
{{- define "source-controller.sourceClusterRole" -}}
{{- .Values.config.sourceClusterRole | default (printf "%s-source" (include "multicluster.release" .)) -}}
{{- end -}}

{{- define "source-controller.clusterSummaryViewerClusterRole" -}}
{{- .Values.config.clusterSummaryViewerClusterRole | default (printf "%s-cluster-summary-viewer" (include "multicluster.release" .)) -}}
{{- end -}}
