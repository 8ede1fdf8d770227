// SPDX-License-Identifier: Apache-2.0

// Package manifest renders the Kubernetes objects that run an agent, a hub, a discovery
// service or the announcements of nodes: options in, YAML out. It checks every option and
// reports all problems at once. It does not read files or talk to a cluster, and has only
// the fields of each Kubernetes kind that it writes.
package manifest

import (
	"bytes"
	"time"

	"go.yaml.in/yaml/v3"
)

// The paths and numbers that image, units and manifests have in common.
const (
	User         = 65532 // uid and gid of the image
	HubPort      = 8443
	AdminPort    = 8444 // hub, https
	HealthPort   = 8445 // agent, http
	MeetPort     = 8446 // discovery service
	MeetAdmin    = 8447 // discovery service, http
	MeetSTUN     = 3478 // discovery service, UDP, beside MeetPort
	MemberHealth = 8448 // announcement, http
	StateRoot    = "/var/lib/tombolo"
	RunDir       = "/run/tombolo"
	graceMargin  = 10 * time.Second // from the end of the drain to the kill
	joinDir      = "/etc/tombolo/join"
	configDir    = "/etc/tombolo/config"
	configFile   = "hub.yaml"
	stateVolume  = "state"
	runVolume    = "run"
	defaultDrain = 25 * time.Second
)

// Common are the options that all components share. Empty ones get the defaults of
// AgentDefaults, HubDefaults and so on.
type Common struct {
	Namespace       string
	NoNamespace     bool // leave the Namespace object out
	Name            string
	Image           string
	ImagePullPolicy string
	ImagePullSecret string   // name of a Secret in the namespace
	NodeSelector    []string // KEY=VALUE
	Tolerations     []string // KEY[=VALUE][:EFFECT], or * for every taint
	PriorityClass   string
	HostNetwork     bool
	StorageClass    string // of the volume claim; empty takes the cluster's default
	CPURequest      string
	MemoryRequest   string
	MemoryLimit     string // empty: none
	LogLevel        string
	DrainTimeout    time.Duration
}

// commonDefaults are for a busy small installation: a session needs about 50
// KB, a stream up to a few hundred while it moves bytes.
func commonDefaults() Common {
	return Common{
		Namespace:       "tombolo-system",
		ImagePullPolicy: "IfNotPresent",
		CPURequest:      "50m",
		MemoryRequest:   "64Mi",
		MemoryLimit:     "512Mi",
		LogLevel:        "info",
		DrainTimeout:    defaultDrain,
	}
}

// asText renders a configuration as block-style YAML.
func asText(v any) (string, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	if err := enc.Close(); err != nil {
		return "", err
	}
	return out.String(), nil
}

// document is one object of the output.
type document any

// render writes the objects as one YAML stream below a comment.
func render(comment []string, docs ...document) ([]byte, error) {
	var out bytes.Buffer
	for _, line := range comment {
		out.WriteString("# " + line + "\n")
	}
	for _, doc := range docs {
		out.WriteString("---\n")
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := enc.Encode(doc); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
