{{/* The name of everything: short enough for the labels that a StatefulSet makes of it. */}}
{{- define "standfast.name" -}}
{{- if contains "standfast" .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-standfast" (.Release.Name | trunc 42 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{/* What the pods are found by; it never changes. */}}
{{- define "standfast.selector" -}}
app.kubernetes.io/name: standfast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "standfast.labels" -}}
{{ include "standfast.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
