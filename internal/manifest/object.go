// SPDX-License-Identifier: Apache-2.0

package manifest

// The Kubernetes kinds, with the fields that this package writes, in their usual order.
// The API's own Go types would add 10 MB to the binary.

type labels map[string]string

type meta struct {
	Name        string            `yaml:"name,omitempty"`
	Namespace   string            `yaml:"namespace,omitempty"`
	Labels      labels            `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type namespace struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   meta   `yaml:"metadata"`
}

type serviceAccount struct {
	APIVersion     string `yaml:"apiVersion"`
	Kind           string `yaml:"kind"`
	Metadata       meta   `yaml:"metadata"`
	AutomountToken bool   `yaml:"automountServiceAccountToken"`
}

type secret struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   meta              `yaml:"metadata"`
	Type       string            `yaml:"type"`
	StringData map[string]string `yaml:"stringData,omitempty"`
}

type configMap struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   meta              `yaml:"metadata"`
	Data       map[string]string `yaml:"data,omitempty"`
}

type service struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	Metadata   meta        `yaml:"metadata"`
	Spec       serviceSpec `yaml:"spec"`
}

type serviceSpec struct {
	Type                  string        `yaml:"type"`
	ExternalTrafficPolicy string        `yaml:"externalTrafficPolicy,omitempty"`
	PublishNotReady       bool          `yaml:"publishNotReadyAddresses,omitempty"`
	Selector              labels        `yaml:"selector"`
	Ports                 []servicePort `yaml:"ports"`
}

type servicePort struct {
	Name       string `yaml:"name"`
	Port       int    `yaml:"port"`
	TargetPort int    `yaml:"targetPort"`
	NodePort   int    `yaml:"nodePort,omitempty"`
	Protocol   string `yaml:"protocol"`
}

type networkPolicy struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   meta              `yaml:"metadata"`
	Spec       networkPolicySpec `yaml:"spec"`
}

type networkPolicySpec struct {
	Pods    labelSelector   `yaml:"podSelector"`
	Types   []string        `yaml:"policyTypes"`
	Ingress []networkAccess `yaml:"ingress"`
}

// networkAccess lets everybody reach some ports.
type networkAccess struct {
	Ports []networkPort `yaml:"ports"`
}

type networkPort struct {
	Port     int    `yaml:"port"`
	Protocol string `yaml:"protocol"`
}

type disruptionBudget struct {
	APIVersion string               `yaml:"apiVersion"`
	Kind       string               `yaml:"kind"`
	Metadata   meta                 `yaml:"metadata"`
	Spec       disruptionBudgetSpec `yaml:"spec"`
}

type disruptionBudgetSpec struct {
	MaxUnavailable int           `yaml:"maxUnavailable"`
	Selector       labelSelector `yaml:"selector"`
}

type labelSelector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

// workload is a Deployment or a StatefulSet.
type workload struct {
	APIVersion string       `yaml:"apiVersion"`
	Kind       string       `yaml:"kind"`
	Metadata   meta         `yaml:"metadata"`
	Spec       workloadSpec `yaml:"spec"`
}

type workloadSpec struct {
	Replicas             int             `yaml:"replicas"`
	RevisionHistoryLimit int             `yaml:"revisionHistoryLimit"`
	ServiceName          string          `yaml:"serviceName,omitempty"`         // StatefulSet
	PodManagementPolicy  string          `yaml:"podManagementPolicy,omitempty"` // StatefulSet
	Strategy             *updateStrategy `yaml:"strategy,omitempty"`            // Deployment
	Selector             labelSelector   `yaml:"selector"`
	Template             podTemplate     `yaml:"template"`
	ClaimTemplates       []claim         `yaml:"volumeClaimTemplates,omitempty"` // StatefulSet
}

type daemonSet struct {
	APIVersion string        `yaml:"apiVersion"`
	Kind       string        `yaml:"kind"`
	Metadata   meta          `yaml:"metadata"`
	Spec       daemonSetSpec `yaml:"spec"`
}

type daemonSetSpec struct {
	RevisionHistoryLimit int            `yaml:"revisionHistoryLimit"`
	UpdateStrategy       updateStrategy `yaml:"updateStrategy"`
	Selector             labelSelector  `yaml:"selector"`
	Template             podTemplate    `yaml:"template"`
}

type updateStrategy struct {
	Type          string        `yaml:"type"`
	RollingUpdate rollingUpdate `yaml:"rollingUpdate,omitempty"` // none with Recreate
}

type rollingUpdate struct {
	MaxUnavailable int `yaml:"maxUnavailable"`
	MaxSurge       int `yaml:"maxSurge"`
}

type claim struct {
	Metadata meta      `yaml:"metadata"`
	Spec     claimSpec `yaml:"spec"`
}

type claimSpec struct {
	AccessModes      []string  `yaml:"accessModes"`
	StorageClassName string    `yaml:"storageClassName,omitempty"`
	Resources        resources `yaml:"resources"`
}

type podTemplate struct {
	Metadata meta    `yaml:"metadata"`
	Spec     podSpec `yaml:"spec"`
}

type podSpec struct {
	ServiceAccountName string             `yaml:"serviceAccountName"`
	AutomountToken     bool               `yaml:"automountServiceAccountToken"`
	EnableServiceLinks bool               `yaml:"enableServiceLinks"`
	HostNetwork        bool               `yaml:"hostNetwork,omitempty"`
	DNSPolicy          string             `yaml:"dnsPolicy,omitempty"`
	DNSConfig          *dnsConfig         `yaml:"dnsConfig,omitempty"`
	PriorityClassName  string             `yaml:"priorityClassName,omitempty"`
	GracePeriod        int                `yaml:"terminationGracePeriodSeconds"`
	ImagePullSecrets   []named            `yaml:"imagePullSecrets,omitempty"`
	NodeSelector       map[string]string  `yaml:"nodeSelector,omitempty"`
	Tolerations        []toleration       `yaml:"tolerations,omitempty"`
	Spread             []spread           `yaml:"topologySpreadConstraints,omitempty"`
	SecurityContext    podSecurityContext `yaml:"securityContext"`
	InitContainers     []container        `yaml:"initContainers,omitempty"`
	Containers         []container        `yaml:"containers"`
	Volumes            []volume           `yaml:"volumes"`
}

// dnsConfig is what a pod's resolv.conf says.
type dnsConfig struct {
	Nameservers []string    `yaml:"nameservers"`
	Searches    []string    `yaml:"searches,omitempty"`
	Options     []dnsOption `yaml:"options,omitempty"`
}

type dnsOption struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

type named struct {
	Name string `yaml:"name"`
}

type toleration struct {
	Key      string `yaml:"key,omitempty"`
	Operator string `yaml:"operator"`
	Value    string `yaml:"value,omitempty"`
	Effect   string `yaml:"effect,omitempty"`
}

type spread struct {
	MaxSkew           int           `yaml:"maxSkew"`
	TopologyKey       string        `yaml:"topologyKey"`
	WhenUnsatisfiable string        `yaml:"whenUnsatisfiable"`
	LabelSelector     labelSelector `yaml:"labelSelector"`
}

type podSecurityContext struct {
	RunAsNonRoot        bool            `yaml:"runAsNonRoot,omitempty"`
	RunAsUser           int             `yaml:"runAsUser,omitempty"`
	RunAsGroup          int             `yaml:"runAsGroup,omitempty"`
	FSGroup             int             `yaml:"fsGroup,omitempty"`
	FSGroupChangePolicy string          `yaml:"fsGroupChangePolicy,omitempty"`
	SeccompProfile      profile         `yaml:"seccompProfile"`
	SELinux             *seLinuxOptions `yaml:"seLinuxOptions,omitempty"`
}

type seLinuxOptions struct {
	Level string `yaml:"level"`
	Type  string `yaml:"type"`
}

type profile struct {
	Type string `yaml:"type"`
}

type container struct {
	Name            string          `yaml:"name"`
	Image           string          `yaml:"image"`
	ImagePullPolicy string          `yaml:"imagePullPolicy"`
	RestartPolicy   string          `yaml:"restartPolicy,omitempty"` // of an init container: Always makes it a sidecar
	Command         []string        `yaml:"command,omitempty"`
	Args            []string        `yaml:"args,omitempty"`
	Env             []variable      `yaml:"env,omitempty"`
	Ports           []containerPort `yaml:"ports,omitempty"`
	StartupProbe    probe           `yaml:"startupProbe,omitempty"`
	LivenessProbe   probe           `yaml:"livenessProbe,omitempty"`
	ReadinessProbe  probe           `yaml:"readinessProbe,omitempty"`
	Resources       resources       `yaml:"resources,omitempty"`
	SecurityContext securityContext `yaml:"securityContext"`
	VolumeMounts    []volumeMount   `yaml:"volumeMounts,omitempty"`
}

// podPatch is what a strategic merge adds to the pods of a workload.
type podPatch struct {
	APIVersion string       `yaml:"apiVersion"`
	Kind       string       `yaml:"kind"`
	Metadata   meta         `yaml:"metadata"`
	Spec       podPatchSpec `yaml:"spec"`
}

type podPatchSpec struct {
	Template podPatchTemplate `yaml:"template"`
}

type podPatchTemplate struct {
	Metadata meta        `yaml:"metadata"`
	Spec     podAddition `yaml:"spec"`
}

// podAddition has the fields of podSpec that a patch sets; the others are the workload's own.
type podAddition struct {
	DNSPolicy        string      `yaml:"dnsPolicy,omitempty"`
	DNSConfig        *dnsConfig  `yaml:"dnsConfig,omitempty"`
	ImagePullSecrets []named     `yaml:"imagePullSecrets,omitempty"`
	InitContainers   []container `yaml:"initContainers"`
	Volumes          []volume    `yaml:"volumes"`
}

// variable is an environment variable from a field of the pod.
type variable struct {
	Name string       `yaml:"name"`
	From variableFrom `yaml:"valueFrom"`
}

type variableFrom struct {
	Field fieldRef `yaml:"fieldRef"`
}

type fieldRef struct {
	Path string `yaml:"fieldPath"`
}

type containerPort struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
	Protocol      string `yaml:"protocol"`
}

type probe struct {
	HTTPGet          httpGet `yaml:"httpGet"`
	PeriodSeconds    int     `yaml:"periodSeconds"`
	TimeoutSeconds   int     `yaml:"timeoutSeconds"`
	FailureThreshold int     `yaml:"failureThreshold"`
}

type httpGet struct {
	Host   string `yaml:"host,omitempty"`
	Path   string `yaml:"path"`
	Port   int    `yaml:"port"`
	Scheme string `yaml:"scheme"`
}

type resources struct {
	Requests map[string]string `yaml:"requests,omitempty"`
	Limits   map[string]string `yaml:"limits,omitempty"`
}

type securityContext struct {
	RunAsNonRoot             *bool        `yaml:"runAsNonRoot,omitempty"` // these as the pod says if nil
	RunAsUser                *int         `yaml:"runAsUser,omitempty"`
	RunAsGroup               *int         `yaml:"runAsGroup,omitempty"`
	Privileged               bool         `yaml:"privileged,omitempty"`
	AllowPrivilegeEscalation bool         `yaml:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool         `yaml:"readOnlyRootFilesystem"`
	Capabilities             capabilities `yaml:"capabilities,omitempty"` // none if it is privileged
	SeccompProfile           *profile     `yaml:"seccompProfile,omitempty"`
}

type capabilities struct {
	Add  []string `yaml:"add,omitempty"`
	Drop []string `yaml:"drop"`
}

type volumeMount struct {
	Name      string `yaml:"name"`
	MountPath string `yaml:"mountPath"`
	SubPath   string `yaml:"subPath,omitempty"`
	ReadOnly  bool   `yaml:"readOnly,omitempty"`
}

type volume struct {
	Name      string           `yaml:"name"`
	Secret    *secretVolume    `yaml:"secret,omitempty"`
	ConfigMap *configMapVolume `yaml:"configMap,omitempty"`
	EmptyDir  *emptyDir        `yaml:"emptyDir,omitempty"`
	HostPath  *hostPath        `yaml:"hostPath,omitempty"`
}

type secretVolume struct {
	SecretName  string `yaml:"secretName"`
	DefaultMode int    `yaml:"defaultMode"`
}

type configMapVolume struct {
	Name        string `yaml:"name"`
	DefaultMode int    `yaml:"defaultMode"`
}

type emptyDir struct {
	SizeLimit string `yaml:"sizeLimit,omitempty"`
}

type hostPath struct {
	Path string `yaml:"path"`
	Type string `yaml:"type"`
}
