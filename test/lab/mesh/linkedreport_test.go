// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/link/report"
)

// nodeConfig is what a node has written.
type nodeConfig struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec   v1alpha1.NodeConfigSpec `json:"spec"`
	Status report.Status           `json:"status"`
}

// plan is the NodeConfig of a node.
func (c *linkedCluster) plan(n *node) (out nodeConfig, err error) {
	o := c.api.Object(kubetest.NodeConfigs, v1alpha1.ClusterNodeName(c.name, n.host.Name()))
	if o == nil {
		return out, errNotYet
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// tunnel is the state of a node's tunnel to another one, and since when; empty: it has none.
func (c nodeConfig) tunnel(to string) (string, time.Time) {
	for _, t := range c.Status.Tunnels {
		if t.Peer == to {
			return t.State, t.Since
		}
	}
	return "", time.Time{}
}

// inForce is what speaks against the kernel's having the plan.
func (c nodeConfig) inForce() error {
	if s := c.Status; s.Differs != 0 || s.AppliedGeneration != c.Metadata.Generation {
		return fmt.Errorf("applied %d of %d, %d differ: %v", s.AppliedGeneration, c.Metadata.Generation, s.Differs, s.Differences)
	}
	return nil
}

// reported looks at what a node of the east, and one behind a gateway of the west, write about themselves, also while a
// gateway is away.
func (r *linkedRig) reported(t *testing.T) {
	a, d := r.east.nodes[0], r.west.nodes[2]
	podA, podD := r.east.pods[0], r.west.pods[2]
	b, c := "west."+r.west.nodes[0].host.Name(), "west."+r.west.nodes[1].host.Name()
	r.eventually("the NodeConfig of a has both gateways", nil, func() error {
		is, err := r.east.plan(a)
		if err == nil {
			err = is.inForce()
		}
		if err == nil {
			err = is.reaches(podD.share, b, c)
		}
		for _, name := range []string{b, c} {
			if state, _ := is.tunnel(name); err == nil && state != report.Up {
				err = fmt.Errorf("%s is %q", name, state)
			}
		}
		return err
	})
	r.eventually("that of d has a gateway as the next hop", nil, func() error {
		is, err := r.west.plan(d)
		if err == nil {
			err = is.inForce()
		}
		at := slices.IndexFunc(is.Spec.Routes, func(x v1alpha1.PlannedRoute) bool { return string(x.CIDR) == podA.share })
		if err == nil && (at < 0 || is.Spec.Routes[at].Via == "" || len(is.Spec.Peers) > 0 || len(is.Status.Tunnels) > 0) {
			err = fmt.Errorf("%+v", is)
		}
		return err
	})

	through := r.carrier(podD.addr)
	name := "west." + through.host.Name()
	await := func(state string) time.Time {
		t.Helper()
		var since time.Time
		r.eventually("a reports that "+name+" is "+state, nil, func() error {
			is, err := r.east.plan(a)
			if err != nil {
				return err
			}
			got, at := is.tunnel(name)
			if since = at; got != state {
				return fmt.Errorf("it is %q: %+v", got, is.Status)
			}
			return nil
		})
		return since
	}
	up := await(report.Up)
	begin := time.Now()
	through.kill()
	if down := await(report.Down); !down.After(up) {
		t.Errorf("it is down since %v, and was up since %v", down, up)
	}
	t.Logf("a reports it %v after %s was killed", time.Since(begin).Round(time.Millisecond), through.name)
	r.east.api.Delete(kubetest.NodeConfigs, v1alpha1.ClusterNodeName("east", a.host.Name()))
	through.begin()
	through.awaitUp()
	await(report.Up) // of an object that is written again
}

// reaches is what a plan lacks by which a range is reached through one of some nodes, and its source stays.
func (c nodeConfig) reaches(share string, peers ...string) error {
	var owners []string
	for _, p := range c.Spec.Peers {
		switch {
		case !slices.Contains(peers, p.Name):
			return fmt.Errorf("%s is a peer", p.Name)
		case p.Engine != "wireguard" || p.PublicKey == "" || len(p.Endpoints) == 0:
			return fmt.Errorf("%+v", p)
		case slices.Contains(p.Ranges, share):
			owners = append(owners, p.Name)
		}
	}
	route := slices.IndexFunc(c.Spec.Routes, func(x v1alpha1.PlannedRoute) bool {
		return string(x.CIDR) == share && x.Interface == "tombolo0" && x.Table != 0 && !x.Closed && x.Via == ""
	})
	kept := slices.ContainsFunc(c.Spec.IPsetsAvoidMasq, func(x v1alpha1.IPSetEntry) bool { return strings.HasPrefix(x.Name, "linked") })
	if len(c.Spec.Peers) != len(peers) || len(owners) != 1 || route < 0 || !kept {
		return fmt.Errorf("%s is reached through %v: %+v", share, owners, c.Spec)
	}
	return nil
}
