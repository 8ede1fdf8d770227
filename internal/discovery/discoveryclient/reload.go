// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"reflect"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Reload takes over what a running client can: what the node states about itself, and other
// secrets, all or nothing. It names the settings that differ and need a restart.
func (c *Client) Reload(next Config) (fixed []string, err error) {
	fixed = c.Fixed(next)
	if c.self == nil {
		return fixed, nil
	}
	if err := c.self.takes(c.Heir(next).keys, next.Announce, next.WireGuard); err != nil {
		return fixed, err // and nothing is taken over
	}
	c.Prove(next.WireGuard)
	if err := c.TakeSecrets(next); err != nil {
		return fixed, err
	}
	return fixed, c.Announce(next.Announce)
}

// Fixed names the settings that differ and need a restart.
func (c *Client) Fixed(next Config) []string {
	return conf.Settings{
		{"cluster", c.cfg.ClusterID == next.ClusterID &&
			(c.subs.exchangeable() || slices.Equal(c.Clusters(), next.Clusters()))},
		{"node.stateDir", c.cfg.StateDir == next.StateDir},
		{"node.runDir", c.cfg.RunDir == next.RunDir},
		{"announce.lease", c.cfg.Lease == next.Lease},
		{"announce.podRanges", c.cfg.PodRanges == next.PodRanges},
		{"sources.services", slices.EqualFunc(c.cfg.Services, next.Services, Service.equal)},
		{"sources.file", c.cfg.File == next.File},
		{"sources.kubernetes", reflect.DeepEqual(c.cfg.Kubernetes, next.Kubernetes)},
		{"cache", c.cfg.Cache == next.Cache},
		{"healthListen", c.cfg.HealthListen == next.HealthListen},
		{"log", c.cfg.Log == next.Log},
	}.Changed()
}
