// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tombolo-io/tombolo/api/objects/crds"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ControllerOptions configure a controller in Kubernetes.
type ControllerOptions struct {
	Common
	Config   string // text of a ControllerConfig; empty: one that checks policies, and no gateways
	Replicas int

	// Gateways are the namespaces in which Config has lists enforced.
	Gateways []string

	// MeshRoot is the root namespace of the mesh in Config.
	MeshRoot string

	// Gardener says that Config has Extensions of type acl read, Answer that gardenlet is answered.
	Gardener, Answer bool

	// Shoots says that Config has Shoots judged.
	Shoots bool

	// LinkHost says that Config has linked clusters accepted. LinkMembers are clusters that get an account.
	LinkHost    bool
	LinkMembers []string
	// Linked says that Config has this cluster linked, HostKubeconfig where it expects the credentials for the host
	// cluster: in a Secret NAME-host.
	Linked         bool
	HostKubeconfig string
}

// ControllerDefaults returns the default options.
func ControllerDefaults() ControllerOptions {
	out := ControllerOptions{Common: commonDefaults(), Replicas: 2}
	out.MeshRoot = "istio-system"
	out.Name, out.MemoryRequest, out.MemoryLimit = "tombolo-controller", "128Mi", "1Gi"
	return out
}

// Suits says what the objects need in a configuration.
func (o ControllerOptions) Suits(name, namespace, webhooks, health string) error {
	var p problems
	for _, one := range []struct{ field, got, want string }{
		{"name", name, o.Name}, {"webhooks.listen", webhooks, ":" + strconv.Itoa(controllerHooks)},
		{"healthListen", health, ":" + strconv.Itoa(controllerHealth)},
	} {
		if one.got != one.want {
			p.add("config", "%s is %q there, and must be %q", one.field, one.got, one.want)
		}
	}
	if namespace != "" && namespace != o.Namespace {
		p.add("config", "namespace is %q there, and must be %q", namespace, o.Namespace)
	}
	return p.fault("controller manifest")
}

const (
	controllerFile   = "controller.yaml"
	controllerHealth = 8449
	controllerHooks  = 9443
	rbacGroup        = "rbac.authorization.k8s.io"
	admissionGroup   = "admissionregistration.k8s.io"
	istioNetworking  = "networking.istio.io"
	istioSecurity    = "security.istio.io"
	gardenerGroup    = "extensions.gardener.cloud"
	reviewTimeout    = 5 // seconds
)

type role struct {
	APIVersion string     `yaml:"apiVersion"`
	Kind       string     `yaml:"kind"`
	Metadata   meta       `yaml:"metadata"`
	Rules      []roleRule `yaml:"rules"`
}

type webhookConfiguration struct {
	APIVersion string        `yaml:"apiVersion"`
	Kind       string        `yaml:"kind"`
	Metadata   meta          `yaml:"metadata"`
	Webhooks   []webhookRule `yaml:"webhooks"`
}

type webhookRule struct {
	Name           string             `yaml:"name"`
	Client         webhookClient      `yaml:"clientConfig"`
	Rules          []webhookObjects   `yaml:"rules"`
	Namespaces     *labelExpressions  `yaml:"namespaceSelector,omitempty"`
	Conditions     []webhookCondition `yaml:"matchConditions,omitempty"`
	FailurePolicy  string             `yaml:"failurePolicy"`
	MatchPolicy    string             `yaml:"matchPolicy"`
	ObjectSelector *webhookSelector   `yaml:"objectSelector,omitempty"`
	Reinvocation   string             `yaml:"reinvocationPolicy,omitempty"`
	SideEffects    string             `yaml:"sideEffects"`
	TimeoutSeconds int                `yaml:"timeoutSeconds"`
	ReviewVersions []string           `yaml:"admissionReviewVersions,flow"`
}

type labelExpressions struct {
	All []labelExpression `yaml:"matchExpressions"`
}

type labelExpression struct {
	Key      string   `yaml:"key"`
	Operator string   `yaml:"operator"`
	Values   []string `yaml:"values,flow"`
}

// webhookCondition is a CEL expression: the webhook is asked where all of them hold.
type webhookCondition struct {
	Name       string `yaml:"name"`
	Expression string `yaml:"expression"`
}

type webhookSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type webhookClient struct {
	Service webhookService `yaml:"service"`
}

type webhookService struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	Path      string `yaml:"path"`
	Port      int    `yaml:"port"`
}

type webhookObjects struct {
	APIGroups   []string `yaml:"apiGroups,flow"`
	APIVersions []string `yaml:"apiVersions,flow"`
	Resources   []string `yaml:"resources,flow"`
	Operations  []string `yaml:"operations,flow"`
	Scope       string   `yaml:"scope"`
}

// Controller renders the objects that run a controller.
func Controller(o ControllerOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	if o.Replicas < 1 || o.Replicas > limit.SessionsPerCluster {
		p.add("replicas", "%d is not between 1 and %d", o.Replicas, limit.SessionsPerCluster)
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume")
	}
	if o.HostNetwork {
		p.add("host-network", "means nothing: the API server reaches the Service")
	}
	p.hostPlace(o)
	if len(o.Name) > 40 {
		p.add("name", "%q has more than 40 characters", o.Name)
	}
	p.linkMembers(o)
	if err := p.fault("controller manifest"); err != nil {
		return nil, err
	}
	config := o.Config
	if config == "" {
		var err error
		if config, err = asText(controllerConfigOf(o)); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	out.WriteString("# Made by 'tombolo controller manifest'.\n")
	for _, text := range crds.All() {
		out.WriteString("---\n" + text)
	}
	if o.LinkHost {
		out.WriteString("---\n" + linksPolicy + "---\n" + linksBoundPolicy)
	}
	m := objectMeta(o.Common, "controller")
	docs := append(namespaceObject(o.Common, false), accountObject(o.Common, "controller"))
	docs = append(docs, controllerRights(o, m)...)
	if o.LinkHost {
		docs = append(docs, linkHost(o.LinkMembers)...)
		docs = append(docs, linkBound(o.Common)...)
	}
	docs = append(docs, configMap{"v1", "ConfigMap", m, map[string]string{controllerFile: config}},
		service{"v1", "Service", m, serviceSpec{Type: "ClusterIP", Selector: selectorLabels(o.Common), Ports: []servicePort{
			{Name: "webhooks", Port: 443, TargetPort: controllerHooks, Protocol: "TCP"}}}},
		controllerWorkload(o, selector, tolerations))
	if o.Replicas > 1 {
		docs = append(docs, disruptionBudget{"policy/v1", "PodDisruptionBudget", m,
			disruptionBudgetSpec{1, labelSelector{selectorLabels(o.Common)}}})
	}
	docs = append(docs, controllerWebhooks(o, m))
	if len(o.Gateways) > 0 {
		docs = append(docs, controllerInjection(o, m))
	}
	rest, err := render(nil, docs...)
	out.Write(rest)
	return out.Bytes(), err
}

// controllerConfig has the fields of v1alpha1.ControllerConfig that this package sets; a test gives it to the program.
type controllerConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Name       string `yaml:"name"`
	Features   struct {
		Access struct{} `yaml:"access"`
	} `yaml:"features"`
	HealthListen string    `yaml:"healthListen"`
	Log          configLog `yaml:"log"`
	DrainTimeout string    `yaml:"drainTimeout"`
}

func controllerConfigOf(o ControllerOptions) controllerConfig {
	return controllerConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindControllerConfig, Name: o.Name,
		HealthListen: ":" + strconv.Itoa(controllerHealth), Log: configLog{"json", o.LogLevel},
		DrainTimeout: o.DrainTimeout.String(),
	}
}

// controllerRights are the least that a controller needs. Nobody can be allowed to create objects of one name only:
// that is why these rights are of its namespace.
func controllerRights(o ControllerOptions, m meta) []document {
	account := []subject{{Kind: "ServiceAccount", Namespace: o.Namespace, Name: o.Name}}
	whole := meta{Name: o.Namespace + "-" + o.Name, Labels: m.Labels}
	everywhere := []roleRule{
		{[]string{"tombolo.dev"}, []string{"edgetenants"}, nil, []string{"list", "watch"}},
		{[]string{admissionGroup}, []string{"validatingwebhookconfigurations"}, []string{o.Name},
			[]string{"get", "patch"}},
	}
	if len(o.Gateways) > 0 {
		everywhere = append(everywhere, accessRights()...)
		everywhere = append(everywhere, roleRule{[]string{admissionGroup}, []string{"mutatingwebhookconfigurations"},
			[]string{o.Name}, []string{"get", "patch"}})
	}
	if o.Gardener {
		everywhere = append(everywhere, gardenerRights(o.Answer)...)
	}
	if o.LinkHost {
		everywhere = append(everywhere, linksRights()...)
	}
	inside := []roleRule{
		{[]string{"coordination.k8s.io"}, []string{"leases"}, nil, []string{"create"}},
		{[]string{"coordination.k8s.io"}, []string{"leases"}, []string{o.Name}, []string{"get", "update"}},
		{[]string{""}, []string{"secrets"}, nil, []string{"create"}},
		{[]string{""}, []string{"secrets"}, []string{o.Name + "-webhooks"}, []string{"get", "update"}},
		{[]string{"", "events.k8s.io"}, []string{"events"}, nil, []string{"create", "patch"}},
	}
	if o.Linked {
		everywhere, inside = append(everywhere, memberOfLinks()...), append(inside, askServices())
	}
	out := []document{
		role{rbacGroup + "/v1", "Role", m, inside},
		clusterRoleBinding{rbacGroup + "/v1", "RoleBinding", m, roleRef{rbacGroup, "Role", o.Name}, account},
		clusterRole{rbacGroup + "/v1", "ClusterRole", whole, everywhere},
		clusterRoleBinding{rbacGroup + "/v1", "ClusterRoleBinding", whole, roleRef{rbacGroup, "ClusterRole", whole.Name},
			account},
	}
	gateways := o.Gateways
	if len(gateways) > 0 && !slices.Contains(gateways, o.MeshRoot) {
		gateways = append(slices.Clone(gateways), o.MeshRoot)
	}
	for _, namespace := range gateways {
		rights := gatewayRights()
		if !slices.Contains(o.Gateways, namespace) {
			rights = rootRights()
		}
		there := meta{Name: whole.Name, Namespace: namespace, Labels: m.Labels}
		out = append(out, role{rbacGroup + "/v1", "Role", there, rights},
			clusterRoleBinding{rbacGroup + "/v1", "RoleBinding", there, roleRef{rbacGroup, "Role", there.Name}, account})
	}
	if rights := systemRights(o); len(rights) > 0 {
		there := meta{Name: whole.Name, Namespace: "kube-system", Labels: m.Labels}
		out = append(out, role{rbacGroup + "/v1", "Role", there, rights},
			clusterRoleBinding{rbacGroup + "/v1", "RoleBinding", there, roleRef{rbacGroup, "Role", there.Name}, account})
	}
	return out
}

// gardenerRights are those everywhere of a controller that reads Extensions of type acl.
func gardenerRights(answer bool) []roleRule {
	out := []roleRule{
		{[]string{gardenerGroup}, []string{"extensions", "clusters", "infrastructures"}, nil, []string{"list", "watch"}},
		{[]string{"tombolo.dev"}, []string{"accesspolicies", "edgetenants"}, nil,
			[]string{"get", "create", "patch", "delete"}},
	}
	if answer {
		out = append(out, roleRule{[]string{gardenerGroup}, []string{"extensions", "extensions/status"}, nil,
			[]string{"patch"}})
	}
	return out
}

// accessRights are those everywhere of a controller that enforces access lists. Events about objects without a
// namespace are in the namespace default.
func accessRights() []roleRule {
	look := []string{"list", "watch"}
	return []roleRule{
		{[]string{"tombolo.dev"}, []string{"accesspolicies"}, nil, look},
		{[]string{"tombolo.dev"}, []string{"accesspolicies/status", "edgetenants/status"}, nil, []string{"patch"}},
		{[]string{istioNetworking}, []string{"gateways", "virtualservices", "envoyfilters"}, nil, look},
		{[]string{istioSecurity}, []string{"authorizationpolicies"}, nil, look},
		{[]string{""}, []string{"services"}, nil, look},
		{[]string{"events.k8s.io"}, []string{"events"}, nil, []string{"create", "patch"}},
	}
}

// gatewayRights are those in the namespace of a gateway.
func gatewayRights() []roleRule {
	write := []string{"create", "patch", "delete"}
	return []roleRule{
		{[]string{istioNetworking}, []string{"envoyfilters"}, nil, write},
		{[]string{istioSecurity}, []string{"authorizationpolicies"}, nil, write},
		{[]string{""}, []string{"configmaps"}, nil, append([]string{"get", "list", "watch"}, write...)},
	}
}

// rootRights are those in the root namespace of the mesh, whose EnvoyFilters count at every gateway.
func rootRights() []roleRule {
	return []roleRule{{[]string{istioNetworking}, []string{"envoyfilters"}, nil, []string{"patch"}}}
}

// controllerWebhooks says what the API server asks. A policy that nobody has judged is not stored; a tenant is, because
// edges and the controller judge it once more.
func controllerWebhooks(o ControllerOptions, m meta) document {
	hook := func(kind, path, resource, scope, failure string) webhookRule {
		return webhookRule{
			Name: kind + ".tombolo.dev", FailurePolicy: failure, MatchPolicy: "Equivalent", SideEffects: "None",
			TimeoutSeconds: reviewTimeout, ReviewVersions: []string{"v1"},
			Client: webhookClient{webhookService{o.Namespace, o.Name, path, 443}},
			Rules: []webhookObjects{{[]string{"tombolo.dev"}, []string{"v1alpha1"}, []string{resource},
				[]string{"CREATE", "UPDATE"}, scope}},
		}
	}
	hooks := []webhookRule{
		hook("accesspolicy", "/validate/accesspolicy", "accesspolicies", "Cluster", "Fail"),
		hook("edgetenant", "/validate/edgetenant", "edgetenants", "Namespaced", "Ignore"),
	}
	if o.Shoots { // those that Gardener labels, as its extension's admission has them
		shoot := hook("shoot", "/validate/shoot", "shoots", "Namespaced", "Fail")
		shoot.Rules[0].APIGroups, shoot.Rules[0].APIVersions = []string{"core.gardener.cloud"}, []string{"v1beta1"}
		shoot.ObjectSelector = &webhookSelector{map[string]string{"extensions.extensions.gardener.cloud/acl": "true"}}
		hooks = append(hooks, shoot)
	}
	return webhookConfiguration{admissionGroup + "/v1", "ValidatingWebhookConfiguration",
		meta{Name: o.Name, Labels: m.Labels}, hooks}
}

func controllerWorkload(o ControllerOptions, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, controllerHealth, "HTTP")
	box := container{
		Args:          []string{"controller", "--config", configDir + "/" + controllerFile},
		Ports:         []containerPort{{"webhooks", controllerHooks, "TCP"}, {"health", controllerHealth, "TCP"}},
		LivenessProbe: live, ReadinessProbe: ready,
		VolumeMounts: []volumeMount{{Name: "config", MountPath: configDir, ReadOnly: true}},
	}
	pod := newPod(o.Common, "controller", box, selector, tolerations)
	pod.Spec.Volumes = []volume{{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}}}
	o.hostCredentials(&pod)
	pod.Spec.Spread, pod.Spec.AutomountToken = spreadOver(o.Common, o.Replicas), true
	w := workload{"apps/v1", "Deployment", objectMeta(o.Common, "controller"), workloadSpec{
		Replicas: o.Replicas, RevisionHistoryLimit: 3, Selector: labelSelector{selectorLabels(o.Common)}, Template: pod,
	}}
	w.Spec.Strategy = &updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 0, MaxSurge: 1}}
	return w
}
