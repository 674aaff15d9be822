{{- define "gv.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}-epp
{{- end }}

{{- define "gv.pool" -}}
{{ .Values.pool.name | default .Release.Name }}
{{- end }}

{{- /* Not empty if one group serves several pools. */ -}}
{{- define "gv.several" -}}
{{- if or .Values.pools .Values.allPools.enabled -}}
{{- if .Values.standalone.enabled }}{{ fail "pools and allPools do not go with standalone" }}{{ end -}}
{{- if .Values.federation.enabled }}{{ fail "pools and allPools do not go with federation" }}{{ end -}}
{{- if or .Values.pool.create .Values.pool.name }}{{ fail "pool.create and pool.name are for one pool: leave them with pools or allPools" }}{{ end -}}
{{- if .Values.models }}{{ fail "models are for one pool: leave them with pools or allPools" }}{{ end -}}
{{- if not (include "gv.poolPorts" .) }}{{ fail "allPools wants allPools.ports: the Service has to offer them" }}{{ end -}}
true
{{- end -}}
{{- end }}

{{- /* The ports of several pools, separated by spaces. */ -}}
{{- define "gv.poolPorts" -}}
{{- $ports := list -}}
{{- range .Values.pools }}{{ $ports = append $ports (int .port) }}{{ end -}}
{{- if ne (len $ports) (len (uniq $ports)) }}{{ fail "pools: each pool needs its own port" }}{{ end -}}
{{- range .Values.allPools.ports }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- join " " (uniq $ports) -}}
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
