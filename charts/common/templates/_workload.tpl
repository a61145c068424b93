{{/*
The Deployment of a component.

root: the chart's context. args: the component's own flags. env: more environment variables, as YAML.
ports: more container ports, as YAML. lifecycle, volumes, volumeMounts: as YAML. leaderElect: whether replicas elect a leader.
*/}}
{{- define "multicluster.deployment" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "multicluster.metadata" $root | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "multicluster.selector" $root | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        {{- include "multicluster.podLabels" $root | nindent 8 }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "multicluster.fullname" $root }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with ($values.global).imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {{ $root.Chart.Name }}
          image: {{ include "multicluster.image" $root }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            - --admin-address=0.0.0.0:8080
            - {{ printf "--log-format=%s" $values.log.format | quote }}
            - {{ printf "--log-filter=%s" $values.log.filter | quote }}
            {{- if .leaderElect }}
            - --leader-elect
            - --lease-duration-seconds={{ $values.config.leaseDurationSeconds | int }}
            {{- end }}
            {{- range concat (.args | default list) $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            - name: POD_IP
              valueFrom:
                fieldRef:
                  fieldPath: status.podIP
            {{- with .env }}
            {{- . | trim | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: 8080
              protocol: TCP
            {{- with .ports }}
            {{- . | trim | nindent 12 }}
            {{- end }}
          livenessProbe:
            httpGet:
              path: /livez
              port: metrics
            initialDelaySeconds: 5
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          {{- with $values.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          {{- with .lifecycle }}
          lifecycle:
            {{- . | trim | nindent 12 }}
          {{- end }}
          {{- with .volumeMounts }}
          volumeMounts:
            {{- . | trim | nindent 12 }}
          {{- end }}
      {{- with .volumes }}
      volumes:
        {{- . | trim | nindent 8 }}
      {{- end }}
      {{- with include "multicluster.placement" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
{{- end -}}

{{/* Labels of a component's pods: the user's own cannot replace those that select. */}}
{{- define "multicluster.podLabels" -}}
{{- $own := include "multicluster.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "multicluster-scheduler" -}}
{{- mergeOverwrite (deepCopy .Values.podLabels) $own | toYaml -}}
{{- end -}}

{{/* Where pods run: the component's own node selector wins, tolerations add up. */}}
{{- define "multicluster.placement" -}}
{{- $global := .Values.global | default dict -}}
{{- with mergeOverwrite (deepCopy ($global.nodeSelector | default dict)) .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat ($global.tolerations | default list) .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := include "multicluster.selector" . | fromYaml }}
  {{- range .Values.topologySpreadConstraints }}
  - {{- toYaml (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" $selector))) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A budget that never blocks the drain of a component with one replica. */}}
{{- define "multicluster.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "multicluster.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .Values.pdb.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "multicluster.selector" . | nindent 6 }}
{{- end -}}

{{/*
The name of this cluster among the sources of its targets, as a variable of the environment. The umbrella chart's
own `clusterName` cannot reach a subchart's values and comes by its ConfigMap.
*/}}
{{- define "multicluster.clusterName" -}}
- name: MULTICLUSTER_CLUSTER_NAME
  {{- with (.Values.global).clusterName }}
  value: {{ . | quote }}
  {{- else }}
  valueFrom:
    configMapKeyRef:
      name: {{ include "multicluster.release" . }}
      key: clusterName
      optional: true
  {{- end }}
{{- end -}}
