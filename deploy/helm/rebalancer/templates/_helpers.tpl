{{- define "rebalancer.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of what lies outside of the release's namespace: with that in it, so that releases of one name in several
namespaces do not take each other's. Where both are called the same it says so already. */}}
{{- define "rebalancer.outerName" -}}
{{- $name := include "rebalancer.fullname" . -}}
{{- if not (has .Release.Namespace (list "" $name)) -}}{{ .Release.Namespace }}.{{- end -}}{{ $name }}
{{- end -}}

{{/* The name label is what the tool knows its own pods by: it is never overridden. */}}
{{- define "rebalancer.selectorLabels" -}}
app.kubernetes.io/name: rebalancer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rebalancer.labels" -}}
{{ include "rebalancer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "rebalancer.meta" -}}
name: {{ include "rebalancer.fullname" .root }}{{ .suffix }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "rebalancer.labels" .root | nindent 2 }}
{{- end -}}

{{- define "rebalancer.preDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "rebalancer.clusterMeta" -}}
name: {{ include "rebalancer.outerName" .root }}{{ .suffix }}
labels:
  {{- include "rebalancer.labels" .root | nindent 2 }}
{{- end -}}

{{- define "rebalancer.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rebalancer.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rebalancer.priorityClass" -}}
{{- default (include "rebalancer.outerName" .) .Values.priorityClass.name -}}
{{- end -}}

{{/* Where people pause evictions: the settings' name, or one of the release's own. */}}
{{- define "rebalancer.brake" -}}
{{- default (printf "%s-brake" (include "rebalancer.fullname" .)) (default dict .Values.config.brake).name -}}
{{- end -}}

{{/* Ledger and lease, as the settings name them: roles follow. */}}
{{- define "rebalancer.ledger" -}}
{{- default "rebalancer-ledger" (default dict .Values.config.ledger).name -}}
{{- end -}}

{{- define "rebalancer.lease" -}}
{{- default "rebalancer" (default dict .Values.config.leaderElection).name -}}
{{- end -}}

{{- define "rebalancer.image" -}}
{{- $missing := printf "image.repository is empty: no image is published yet. Build it, push it to where the cluster can pull it (docker build -t REGISTRY/rebalancer:%s . && docker push REGISTRY/rebalancer:%s), then --set image.repository=REGISTRY/rebalancer" .Chart.AppVersion .Chart.AppVersion -}}
{{- $repository := required $missing .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The settings file: a profile, .Values.config over it, and last what decides about evictions. */}}
{{- define "rebalancer.config" -}}
{{- $profile := default (ternary "careful" "observe" .Values.evictions.enabled) .Values.profile -}}
{{- $settings := .Files.Get (printf "profiles/%s.yaml" $profile) | fromYaml -}}
{{- $settings = mergeOverwrite $settings (deepCopy .Values.config) -}}
{{- $settings = mergeOverwrite $settings (dict "evictions" (dict "enabled" .Values.evictions.enabled)) -}}
{{- if .Values.replaceFirst.enabled -}}
{{- $settings = merge $settings (dict "evictions" (dict "method" "auto")) -}}
{{- end -}}
{{- if or (ne .Values.prevention.scaleIn "off") .Values.config.prevention -}}
{{- $settings = mergeOverwrite $settings (dict "prevention" (dict "scaleIn" .Values.prevention.scaleIn)) -}}
{{- end -}}
{{- if ne (int .Values.daemon.port) 8080 -}}
{{- $settings = mergeOverwrite $settings (dict "health" (dict "address" (printf ":%d" (int .Values.daemon.port)))) -}}
{{- end -}}
{{- if ne (include "rebalancer.brake" .) "rebalancer-brake" -}}
{{- $settings = mergeOverwrite $settings (dict "brake" (dict "name" (include "rebalancer.brake" .))) -}}
{{- end -}}
{{- with .Values.rbac.namespaces -}}
{{- $settings = mergeOverwrite $settings (dict "scope" (dict "readNamespaces" .)) -}}
{{- end -}}
{{- with .Values.evictions.namespaces -}}
{{- $settings = mergeOverwrite $settings (dict "scope" (dict "namespaces" (dict "include" .))) -}}
{{- end -}}
{{- range $name := list "slack" "webhook" -}}
{{- $to := index $.Values.notifications $name -}}
{{- if $to.secret -}}
{{- $file := printf "/etc/rebalancer-notifications/%s/%s" $name $to.key -}}
{{- $settings = mergeOverwrite $settings (dict "notifications" (dict $name (dict "urlFile" $file))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Gives rules (.rules, a text) to the service account: everywhere, or in each of rbac.namespaces, or of .namespaces. */}}
{{- define "rebalancer.grant" -}}
{{- $part := . -}}
{{- range default .root.Values.rbac.namespaces .namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "rebalancer.outerName" $part.root }}{{ $part.suffix }}
  namespace: {{ . }}
  labels:
    {{- include "rebalancer.labels" $part.root | nindent 4 }}
rules:
  {{- $part.rules | trim | nindent 2 }}
---
{{ include "rebalancer.binding" (dict "root" $part.root "suffix" $part.suffix "namespace" . "kind" "Role") }}
{{- else }}
---
{{ include "rebalancer.clusterRole" . }}
---
{{ include "rebalancer.clusterBinding" . }}
{{- end }}
{{- end -}}

{{/* Gives rules like rebalancer.grant, and in evictions.namespaces only where these are set: the scope includes no other. */}}
{{- define "rebalancer.grantInScope" -}}
{{- $part := . -}}
{{- if and .root.Values.evictions.namespaces .root.Values.rbac.namespaces }}
  {{- include "rebalancer.grant" (merge (dict "namespaces" .root.Values.evictions.namespaces) $part) }}
{{- else if .root.Values.evictions.namespaces }}
---
{{ include "rebalancer.clusterRole" $part }}
{{- range .root.Values.evictions.namespaces }}
---
{{ include "rebalancer.binding" (dict "root" $part.root "suffix" $part.suffix "namespace" .) }}
{{- end }}
{{- else }}
{{- include "rebalancer.grant" $part }}
{{- end }}
{{- end -}}

{{- define "rebalancer.clusterRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "rebalancer.clusterMeta" . | nindent 2 }}
rules:
  {{- .rules | trim | nindent 2 }}
{{- end -}}

{{/* Gives a ClusterRole to the service account, everywhere. */}}
{{- define "rebalancer.clusterBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "rebalancer.clusterMeta" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "rebalancer.outerName" .root }}{{ .suffix }}
subjects:
  {{- include "rebalancer.subject" .root | nindent 2 }}
{{- end -}}

{{/* Gives a Role of the release's namespace, or in .namespace a ClusterRole or what .kind says. */}}
{{- define "rebalancer.binding" -}}
{{- $name := printf "%s%s" (include (ternary "rebalancer.outerName" "rebalancer.fullname" (hasKey . "namespace")) .root) .suffix -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ default .root.Release.Namespace .namespace }}
  labels:
    {{- include "rebalancer.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ default (ternary "ClusterRole" "Role" (hasKey . "namespace")) .kind }}
  name: {{ $name }}
subjects:
  {{- include "rebalancer.subject" .root | nindent 2 }}
{{- end -}}

{{- define "rebalancer.subject" -}}
- kind: ServiceAccount
  name: {{ include "rebalancer.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* A pod template. .component, .args, and .ports with probes for the daemon. */}}
{{- define "rebalancer.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "rebalancer.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ print (include "rebalancer.config" $root) (toYaml $root.Values.files) | sha256sum }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "rebalancer.serviceAccount" $root }}
  automountServiceAccountToken: true
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if ne .component "daemon" }}
  restartPolicy: Never
  {{- end }}
  {{- if ne .component "report" }}
  terminationGracePeriodSeconds: 60
  {{- end }}
  {{- if eq .component "daemon" }}
  priorityClassName: {{ include "rebalancer.priorityClass" $root }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "rebalancer.selectorLabels" $root | nindent 16 }}
                app.kubernetes.io/component: daemon
  topologySpreadConstraints:
    - topologyKey: topology.kubernetes.io/zone
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "rebalancer.selectorLabels" $root | nindent 10 }}
          app.kubernetes.io/component: daemon
      matchLabelKeys: [pod-template-hash]
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: rebalancer
      image: {{ include "rebalancer.image" $root | quote }}
      {{- if ne $root.Values.image.pullPolicy "IfNotPresent" }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- end }}
      args:
        {{- toYaml .args | nindent 8 }}
        - --config
        - /etc/rebalancer/rebalancer.yaml
      {{- with $root.Values.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if eq .component "daemon" }}
      ports:
        - name: http
          containerPort: {{ $root.Values.daemon.port }}
      startupProbe:
        httpGet:
          path: /healthz
          port: http
        periodSeconds: 2
        failureThreshold: 30
      livenessProbe:
        httpGet:
          path: /healthz
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      resources:
        {{- toYaml $root.Values.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/rebalancer
          readOnly: true
        {{- range $name := list "slack" "webhook" }}
        {{- if (index $root.Values.notifications $name).secret }}
        - name: notifications-{{ $name }}
          mountPath: /etc/rebalancer-notifications/{{ $name }}
          readOnly: true
        {{- end }}
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "rebalancer.fullname" $root }}-config
    {{- range $name := list "slack" "webhook" }}
    {{- with (index $root.Values.notifications $name).secret }}
    - name: notifications-{{ $name }}
      secret:
        secretName: {{ . }}
    {{- end }}
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
