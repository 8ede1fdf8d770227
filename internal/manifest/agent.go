// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// AgentOptions configure an agent in Kubernetes.
type AgentOptions struct {
	Common
	Cluster  string   // optional: the cluster that the join line must be for
	Join     string   // the join line itself
	Allow    []string // rules, already accepted by the policy
	Ports    []string // NAME=NUMBER: ports of the hub, for which the agent and its Service listen
	PortFrom []string // who may connect to them
	Replicas int
	// Persist is the size of a volume claim per replica. Without it the identity
	// lives as long as the pod, and a new pod needs a token that is still valid;
	// with it a replica keeps its identity.
	Persist string
}

// AgentDefaults returns the default options.
func AgentDefaults() AgentOptions {
	out := AgentOptions{Common: commonDefaults(), Replicas: 1}
	out.Name = "tombolo-agent"
	return out
}

// Agent renders the objects that run an agent. Its errors never show the join line.
func Agent(o AgentOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	p.join(o)
	config, exposed := p.agentPorts(o)
	if len(o.Allow) == 0 && len(o.Ports) == 0 {
		p.add("allow", "is missing: without a rule the agent refuses every destination; "+
			"give the cluster's pod, service and node ranges")
	}
	for _, rule := range o.Allow {
		if rule == "" || strings.ContainsAny(rule, " \t") || hasControl(rule) {
			p.add("allow", "%q is not a rule", rule)
		}
	}
	if o.Replicas < 1 || o.Replicas > limit.SessionsPerCluster {
		p.add("replicas", "%d is not between 1 and %d", o.Replicas, limit.SessionsPerCluster)
	}
	if o.Persist != "" {
		p.quantity("persist", o.Persist)
	} else if o.StorageClass != "" {
		p.add("storage-class", "means nothing without --persist")
	}
	if err := p.fault("agent manifest"); err != nil {
		return nil, err
	}

	docs := namespaceObject(o.Common, o.HostNetwork)
	docs = append(docs, accountObject(o.Common, "agent"), joinSecret(o))
	var text string
	if len(exposed) > 0 {
		var err error
		if text, err = asText(config); err != nil {
			return nil, err
		}
		docs = append(docs, agentPortObjects(o, text, exposed)...)
	}
	docs = append(docs, agentWorkload(o, text, selector, tolerations))
	if o.Replicas > 1 {
		docs = append(docs, disruptionBudget{
			"policy/v1", "PodDisruptionBudget", objectMeta(o.Common, "agent"),
			disruptionBudgetSpec{1, labelSelector{selectorLabels(o.Common)}},
		})
	}
	return render(agentComment(o), docs...)
}

// join checks the form of the line, and that it is for the given cluster.
func (p *problems) join(o AgentOptions) {
	if o.Cluster != "" {
		p.label("cluster", o.Cluster, 63)
	}
	rest, ok := strings.CutPrefix(o.Join, "tombolo://")
	_, rest, hasToken := strings.Cut(rest, "@")
	parts := strings.Split(rest, "/")
	switch {
	case o.Join == "":
		p.add("join", "is missing: take the line of 'tombolo token create'")
	case !ok || !hasToken || len(parts) != 3 || strings.ContainsAny(o.Join, " \t") || hasControl(o.Join):
		p.add("join", "this is not a join line; it has the form tombolo://TOKEN@HUB:PORT/CLUSTER/PIN")
	case !isLabel(parts[1]):
		p.add("join", "the join line names no cluster")
	case o.Cluster != "" && parts[1] != o.Cluster:
		p.add("join", "the join line is for cluster %q, not %q", parts[1], o.Cluster)
	}
}

func agentComment(o AgentOptions) []string {
	out := []string{"Made by 'tombolo agent manifest'. It holds a join line: treat it as a secret " +
		"until the token is used or has expired."}
	switch {
	case o.Persist != "":
		out = append(out, "Each replica joins once, with one use of the token, and keeps its identity in its volume.")
	default:
		out = append(out, "Each new pod joins with one use of the token ('tombolo token create --uses N --ttl D'); "+
			"a container that restarts in its pod keeps its identity.")
	}
	return out
}

func joinSecret(o AgentOptions) document {
	m := objectMeta(o.Common, "agent")
	m.Name += "-join"
	return secret{"v1", "Secret", m, "Opaque", map[string]string{"join": o.Join}}
}

// agentWorkload runs the agent.
//
//	config: text of an AgentConfig; empty: none
func agentWorkload(o AgentOptions, config string, selector map[string]string, tolerations []toleration) document {
	health := ":" + strconv.Itoa(HealthPort)
	if o.HostNetwork {
		health = loopback + health
	}
	args := []string{
		"agent", "--join", "@" + joinDir + "/join", "--state-dir", StateRoot + "/agent",
		"--health-listen", health, "--drain-timeout", o.DrainTimeout.String(),
		"--log-format", "json", "--log-level", o.LogLevel,
	}
	for _, rule := range o.Allow {
		args = append(args, "--allow", rule)
	}
	live, ready := probes(o.Common, HealthPort, "HTTP")
	pod := newPod(o.Common, "agent", container{
		Args:           args,
		Ports:          ports(o.Common, containerPort{"health", HealthPort, "TCP"}),
		LivenessProbe:  live,
		ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: stateVolume, MountPath: StateRoot},
			{Name: "join", MountPath: joinDir, ReadOnly: true},
		},
	}, selector, tolerations)
	// A new join line must replace the pods. Half of a hash over 160 random bits
	// does not reveal the secret.
	sum := sha256.Sum256([]byte(o.Join))
	pod.Metadata.Annotations = map[string]string{"tombolo.dev/join-line": hex.EncodeToString(sum[:8])}
	pod.Spec.Spread = spreadOver(o.Common, o.Replicas)
	pod.Spec.Volumes = []volume{{Name: "join", Secret: &secretVolume{o.Name + "-join", 0o400}}}
	if config != "" { // a running agent does not take it over
		box, sum := &pod.Spec.Containers[0], sha256.Sum256([]byte(config))
		pod.Metadata.Annotations["tombolo.dev/agent-config"] = hex.EncodeToString(sum[:8])
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}})
		box.Args = append(box.Args, "--config", configDir+"/"+agentFile)
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: "config", MountPath: configDir, ReadOnly: true})
	}

	w := workload{"apps/v1", "Deployment", objectMeta(o.Common, "agent"), workloadSpec{
		Replicas: o.Replicas, RevisionHistoryLimit: 3,
		Selector: labelSelector{selectorLabels(o.Common)},
		Template: pod,
	}}
	if o.Persist != "" {
		w.Kind = "StatefulSet"
		w.Spec.ServiceName, w.Spec.PodManagementPolicy = o.Name, "Parallel"
		w.Spec.ClaimTemplates = []claim{stateClaim(o.Common, o.Persist)}
		return w
	}
	w.Spec.Template.Spec.Volumes = append(pod.Spec.Volumes,
		volume{Name: stateVolume, EmptyDir: &emptyDir{"16Mi"}})
	w.Spec.Strategy = &updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 0, MaxSurge: 1}}
	if o.HostNetwork {
		// The old and the new pod cannot share the health port of one node.
		w.Spec.Strategy.RollingUpdate = rollingUpdate{MaxUnavailable: 1, MaxSurge: 0}
	}
	return w
}
