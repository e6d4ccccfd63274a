{{- /* Values that are not used as they are. */}}
{{- define "fairlead.trusted" -}}
{{- $accounts := list -}}
{{- if ne $.Release.Namespace "kube-system" -}}
{{- $accounts = list (printf "system:serviceaccount:%s:%s-scheduler" $.Release.Namespace $.Values.name) (printf "system:serviceaccount:%s:%s-operator" $.Release.Namespace $.Values.name) -}}
{{- end -}}
{{- concat $accounts $.Values.trusted | toJson -}}
{{- end }}

{{- define "fairlead.schedulers" -}}
{{- $names := list -}}
{{- range $.Values.configuration.profiles -}}
{{- $names = append $names .schedulerName -}}
{{- end -}}
{{- $names | default (list "fairlead" "fairlead-kubernetes") | toJson -}}
{{- end }}

{{- define "fairlead.configuration" -}}
{{- $file := deepCopy $.Values.configuration -}}
{{- if ne $.Values.name "fairlead" -}}
{{- $file = set $file "name" $.Values.name -}}
{{- end -}}
{{- $file = set $file "apiVersion" "config.fairlead.dev/v1alpha1" -}}
{{- set $file "kind" "SchedulerConfiguration" | toPrettyJson -}}
{{- end }}

{{- define "fairlead.requests" -}}
{{- if kindIs "map" $.Values.requests -}}
{{- $.Values.requests | toJson -}}
{{- else -}}
{{- dict "cpu" "1" "memory" "1Gi" | toJson -}}
{{- end -}}
{{- end }}

{{- define "fairlead.reached.scheduler" -}}
{{- $ports := list -}}
{{- range $.Values.apiServerPorts -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end }}

{{- define "fairlead.reached.operator" -}}
{{- $ports := list -}}
{{- range $.Values.apiServerPorts -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- with $.Values.prometheus -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports (int ($port | default (ternary "443" "80" (eq $url.scheme "https")))) -}}
{{- end -}}
{{- if $.Values.history -}}
{{- if $.Values.history.secretName -}}
{{- $ports = append $ports (int ($.Values.history.port | default 5432)) -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end }}

{{- /* A text in CEL, and a list of them without its brackets. */}}
{{- define "fairlead.quoted" -}}
'{{ . | replace "\\" "\\\\" | replace "'" "\\'" }}'
{{- end }}

{{- define "fairlead.listed" -}}
{{- range $index, $each := . -}}{{ if $index }}, {{ end }}{{ include "fairlead.quoted" $each }}{{- end -}}
{{- end }}
