{{/*
Conditions in CEL under which the API server asks at all. What the webhook would answer with "no change" never
reaches it, so that an outage of the webhook stops no other pod.
*/}}

{{/* The pod is a delegate, made by a chaperon-controller of this cluster. */}}
{{- define "webhook.cel.delegate" -}}
("multicluster.admiralty.io/parent-uid" in object.metadata.?labels.orValue({})
&& object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == "PodChaperon"))
{{- end -}}

{{/* The pod carries what only components may write. */}}
{{- define "webhook.cel.carries" -}}
(["sourcepod-manifest", "sourcepod-manifest-mac", "elected-target", "elected-chaperon"].exists(k,
("multicluster.admiralty.io/" + k) in object.metadata.?annotations.orValue({}))
|| (["election-epoch", "grant"].exists(k,
("multicluster.admiralty.io/" + k) in object.metadata.?annotations.orValue({}))
&& !{{ include "webhook.cel.delegate" . }})
|| object.spec.?schedulerName.orValue("") == "admiralty-proxy"
|| (object.spec.?nodeName.orValue("").startsWith("admiralty-")
&& !("kubernetes.io/config.mirror" in object.metadata.?annotations.orValue({}))))
{{- end -}}

{{/* Everything but pods that are never elected; those too when they carry what only components may write. */}}
{{- define "webhook.concerned" -}}
- name: concerned
  expression: >-
    {{- include "webhook.cel.carries" . | nindent 4 }}
    || !(object.metadata.?annotations[?"multicluster.admiralty.io/elect"].orValue("") == "never"
    || object.spec.?nodeName.orValue("") != ""
    || "kubernetes.io/config.mirror" in object.metadata.?annotations.orValue({})
    || object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == "DaemonSet")
    || {{ include "webhook.cel.delegate" . | indent 4 | trim }})
{{- end -}}

{{- define "webhook.elects" -}}
- name: elects
  expression: '"multicluster.admiralty.io/elect" in object.metadata.?annotations.orValue({})'
{{- end -}}

{{- define "webhook.unelected" -}}
- name: unelected
  expression: '!("multicluster.admiralty.io/elect" in object.metadata.?annotations.orValue({}))'
{{- end -}}

{{- define "webhook.carries" -}}
- name: carries
  expression: >-
    {{- include "webhook.cel.carries" . | nindent 4 }}
{{- end -}}

{{/* Somebody else than a component changes what only components may write. */}}
{{- define "webhook.changesRecords" -}}
- name: others
  expression: '!request.userInfo.username.startsWith("system:serviceaccount:{{ .Release.Namespace }}:")'
- name: changes-records
  expression: >-
    ["sourcepod-manifest", "sourcepod-manifest-mac", "elected-target", "elected-chaperon", "election-epoch", "grant"].exists(k,
    object.metadata.?annotations[?("multicluster.admiralty.io/" + k)].orValue("")
    != oldObject.metadata.?annotations[?("multicluster.admiralty.io/" + k)].orValue(""))
    || (object.metadata.?labels[?"multicluster.admiralty.io/has-finalizer"].orValue("") != "true"
    && "multicluster.admiralty.io/delegate" in object.metadata.?finalizers.orValue([]))
{{- end -}}
