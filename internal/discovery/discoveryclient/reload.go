// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"reflect"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Reload takes over what a running client can: what the node says of itself, and other
// secrets, all or nothing. It names the settings that differ and need a restart.
func (f *Client) Reload(next Config) (fixed []string, err error) {
	fixed = f.Fixed(next)
	if f.self == nil {
		return fixed, nil
	}
	if err := f.self.takes(f.Heir(next).keys, next.Announce, next.WireGuard); err != nil {
		return fixed, err // and nothing is taken over
	}
	f.Prove(next.WireGuard)
	if err := f.TakeSecrets(next); err != nil {
		return fixed, err
	}
	return fixed, f.Announce(next.Announce)
}

// Fixed names the settings that differ and need a restart.
func (f *Client) Fixed(next Config) []string {
	return conf.Settings{
		{"cluster", f.cfg.ClusterID == next.ClusterID && (f.exchangeable() || slices.Equal(f.Clusters(), next.Clusters()))},
		{"node.stateDir", f.cfg.StateDir == next.StateDir},
		{"node.runDir", f.cfg.RunDir == next.RunDir},
		{"announce.lease", f.cfg.Lease == next.Lease},
		{"announce.podRanges", f.cfg.PodRanges == next.PodRanges},
		{"sources.services", slices.EqualFunc(f.cfg.Services, next.Services, Service.equal)},
		{"sources.file", f.cfg.File == next.File},
		{"sources.kubernetes", reflect.DeepEqual(f.cfg.Kubernetes, next.Kubernetes)},
		{"cache", f.cfg.Cache == next.Cache},
		{"healthListen", f.cfg.HealthListen == next.HealthListen},
		{"log", f.cfg.Log == next.Log},
	}.Changed()
}
