// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Names of files in the directory of a side.
const (
	fileSecret  = "cluster.secret"
	stateDir    = "state" // of the mesh
	fileKey     = stateDir + "/wireguard.key"
	fileMembers = "members.yaml"
	fileMesh    = "mesh.yaml"
	// ForwardFile has the forwards of an endpoint.
	ForwardFile = "forward.yaml"
	// SecretsDir is the folder of the clusters' secrets on the endpoint's side; each has the name of its cluster.
	SecretsDir = "secrets"
)

// pathProtocol is the version of the mesh's path protocol that both sides speak.
const pathProtocol = 1

// forwardPort is where an endpoint takes connections of clusters to their VPN server: OpenVPN's own.
const forwardPort = 1194

// ClusterSide is what a cluster needs to connect to the endpoints. It holds keys.
type ClusterSide struct {
	State     v1alpha1.ClusterState `json:"state"`
	Range     string                `json:"range"`
	Endpoints []Endpoint            `json:"endpoints"`
}

// ClusterSide is that of a cluster, which must be on.
func (c Config) ClusterSide(k Cluster) (ClusterSide, error) {
	if !c.Serves(k) {
		return ClusterSide{}, fault.Newf(fault.CodeWireGuardOff, "cluster %s is off", k.Name).
			Hint("switch it on: tombolo cluster wireguard %s --on", k.Name)
	}
	return ClusterSide{StateOf(k), c.Range.String(), c.Endpoints}, nil
}

// EndpointSide is what an endpoint needs to let clusters in. It holds their secrets.
type EndpointSide struct {
	// Version changes with the rest. If it is the one that was asked with, the rest is left out.
	Version  string            `json:"version"`
	Listen   string            `json:"listen,omitempty"` // of the forwards; none without VPN servers
	Clusters []EndpointCluster `json:"clusters"`
}

// EndpointCluster is a cluster as an endpoint sees it.
type EndpointCluster struct {
	Name      string     `json:"name"`
	PublicKey string     `json:"publicKey"`
	Address   netip.Addr `json:"address"`
	Secret    string     `json:"secret"`
	Target    string     `json:"target,omitempty"` // its VPN server
}

// EndpointSide is that of the endpoint of this name: all clusters that are on, by name.
func (c Config) EndpointSide(name string, all []Cluster) (EndpointSide, error) {
	i := slices.IndexFunc(c.Endpoints, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return EndpointSide{}, fault.Newf(fault.CodeNotFound, "there is no endpoint %.63q", name).
			Hint("wireguard.endpoints in the hub's configuration has %s", strings.Join(c.endpointNames(), ", "))
	}
	out := EndpointSide{Clusters: []EndpointCluster{}}
	if c.VPNServer != "" {
		out.Listen = netip.AddrPortFrom(c.Endpoints[i].Overlay4, forwardPort).String()
	}
	for _, k := range all {
		if !c.Serves(k) {
			continue
		}
		one := EndpointCluster{Name: k.Name, PublicKey: k.PublicKey.String(), Address: k.Address, Secret: k.Secret.Encode()}
		if c.VPNServer != "" {
			one.Target = c.server(k.Name)
		}
		out.Clusters = append(out.Clusters, one)
	}
	slices.SortFunc(out.Clusters, func(a, b EndpointCluster) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.Marshal(out)
	if err != nil {
		return EndpointSide{}, err
	}
	sum := sha256.Sum256(text)
	out.Version = hex.EncodeToString(sum[:])
	return out, nil
}

func (c Config) endpointNames() (out []string) {
	for _, e := range c.Endpoints {
		out = append(out, e.Name)
	}
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

// File is one file of a side.
type File struct {
	Name string // within the directory of the side, with slashes
	Data []byte
}

// The kinds of the files, as far as they are written here.
type (
	typeMeta struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	memberList struct {
		typeMeta `yaml:",inline"`
		Members  []memberEntry `yaml:"members"`
	}
	memberEntry struct {
		Name          string   `yaml:"name"`
		PublicKey     string   `yaml:"publicKey"`
		Overlay4      string   `yaml:"overlay4"`
		SecretFile    string   `yaml:"secretFile,omitempty"`
		Endpoints     []string `yaml:"endpoints,omitempty"`
		EndpointNames []string `yaml:"endpointNames,omitempty"`
		Mesh          int      `yaml:"mesh,omitempty"`
	}
	meshConfig struct {
		typeMeta `yaml:",inline"`
		Cluster  struct {
			SecretFiles []string `yaml:"secretFiles"`
		} `yaml:"cluster"`
		Node struct {
			Name     string `yaml:"name"`
			StateDir string `yaml:"stateDir"`
		} `yaml:"node"`
		Announce struct {
			Overlay4 string `yaml:"overlay4"`
		} `yaml:"announce"`
		Sources struct {
			File string `yaml:"file"`
		} `yaml:"sources"`
		Mesh struct {
			Overlay4 string `yaml:"overlay4"`
		} `yaml:"mesh"`
	}
	forwardConfig struct {
		typeMeta `yaml:",inline"`
		Listen   string    `yaml:"listen"`
		Clusters []forward `yaml:"clusters"`
	}
	forward struct {
		Name    string `yaml:"name"`
		Address string `yaml:"address"`
		Target  string `yaml:"target"`
	}
)

func kind(name string) typeMeta { return typeMeta{v1alpha1.Version, name} }

// Files are those of the cluster's side, which reads them in the folder at.
func (s ClusterSide) Files(at string) ([]File, error) {
	k := s.State.WireGuard
	members := memberList{typeMeta: kind(v1alpha1.KindMemberList)}
	for _, e := range s.Endpoints {
		m := memberEntry{Name: e.Name, PublicKey: e.PublicKey.String(), Overlay4: e.Overlay4.String()}
		if !e.Kernel { // whose WireGuard answers no probes
			m.Mesh = pathProtocol
		}
		if e.named() {
			m.EndpointNames = []string{e.Address}
		} else {
			m.Endpoints = []string{e.Address}
		}
		members.Members = append(members.Members, m)
	}
	mesh := meshConfig{typeMeta: kind(v1alpha1.KindMeshConfig)}
	mesh.Cluster.SecretFiles = []string{path.Join(at, fileSecret)}
	mesh.Node.Name, mesh.Node.StateDir = s.State.Cluster, path.Join(at, stateDir)
	mesh.Announce.Overlay4 = k.Address
	mesh.Sources.File = path.Join(at, fileMembers)
	mesh.Mesh.Overlay4 = s.Range
	out := []File{{fileSecret, []byte(k.Secret + "\n")}}
	if k.PrivateKey != "" {
		out = append(out, File{fileKey, []byte(k.PrivateKey + "\n")})
	}
	return render(out, document{fileMembers, members}, document{fileMesh, mesh})
}

// Files are those of the endpoint's side, in the order in which they are to be written: what a file refers to is
// there before it.
func (s EndpointSide) Files() ([]File, error) {
	members := memberList{typeMeta: kind(v1alpha1.KindMemberList), Members: []memberEntry{}}
	forwards := forwardConfig{typeMeta: kind(kindForward), Listen: s.Listen, Clusters: []forward{}}
	var out []File
	for _, k := range s.Clusters {
		if _, err := id.ParseCluster(k.Name); err != nil { // it becomes the name of a file
			return nil, fault.New(fault.CodeHubAway, "the answer of the hub cannot be used").Because(err)
		}
		secret := path.Join(SecretsDir, k.Name)
		out = append(out, File{secret, []byte(k.Secret + "\n")})
		members.Members = append(members.Members, memberEntry{Name: k.Name, PublicKey: k.PublicKey,
			Overlay4: k.Address.String(), SecretFile: secret, Mesh: pathProtocol})
		forwards.Clusters = append(forwards.Clusters, forward{k.Name, k.Address.String(), k.Target})
	}
	docs := []document{{fileMembers, members}}
	if s.Listen != "" {
		docs = append(docs, document{ForwardFile, forwards})
	}
	return render(out, docs...)
}

// kindForward is the kind of what an endpoint forwards to VPN servers.
const kindForward = "VPNForwardConfig"

type document struct {
	name  string
	value any
}

func render(out []File, docs ...document) ([]File, error) {
	for _, d := range docs {
		var b bytes.Buffer
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		if err := enc.Encode(d.value); err != nil {
			return nil, err
		}
		out = append(out, File{d.name, b.Bytes()})
	}
	return out, nil
}
