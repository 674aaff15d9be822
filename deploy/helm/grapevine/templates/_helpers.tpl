{{- define "gv.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}-epp
{{- end }}

{{- define "gv.pool" -}}
{{ .Values.pool.name | default .Release.Name }}
{{- end }}

{{- define "gv.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gv.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "gv.secret" -}}
{{ .Values.cluster.existingSecret | default (printf "%s-group" (include "gv.name" .)) }}
{{- end }}

{{- define "gv.certificate" -}}
{{- if eq .Values.tls.mode "secret" }}{{ required "tls.mode secret wants tls.secretName" .Values.tls.secretName }}
{{- else if eq .Values.tls.mode "cert-manager" }}{{ .Values.tls.secretName | default (printf "%s-tls" (include "gv.name" .)) }}{{ end }}
{{- end }}

{{- define "gv.selector" -}}
app.kubernetes.io/name: grapevine
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: picker
{{- end }}

{{- define "gv.labels" -}}
{{ include "gv.selector" . }}
app.kubernetes.io/version: {{ include "gv.tag" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Numbers in values files are floats, which would print as 2.0261128e+07. */ -}}
{{- define "gv.tag" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if kindIs "float64" $tag }}{{ $tag | int64 }}{{ else }}{{ $tag }}{{ end }}
{{- end }}

{{- define "gv.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ include "gv.tag" . }}{{ end }}
{{- end }}

{{- define "gv.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "gv.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Helm merges a value with its default, so that another kind of volume comes with emptyDir. */ -}}
{{- define "gv.volume" -}}
{{- if gt (len .) 1 }}{{ toYaml (omit . "emptyDir") }}{{ else }}{{ toYaml . }}{{ end }}
{{- end }}
