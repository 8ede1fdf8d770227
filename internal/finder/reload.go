// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"reflect"
	"slices"
)

// Reload takes over what a running finder can: what the node says of itself. It
// names the settings that differ and need a restart.
func (f *Finder) Reload(next Config) (fixed []string, err error) {
	services := func(c Config) (out []string) {
		for _, s := range c.Services {
			out = append(out, s.Name+" "+s.URL()+" "+string(s.Protocol)+" "+string(s.Pin))
		}
		return out
	}
	for _, p := range []struct {
		name string
		same bool
	}{
		{"cluster", f.cfg.ClusterID == next.ClusterID && slices.Equal(f.cfg.Clusters(), next.Clusters())},
		{"node.stateDir", f.cfg.StateDir == next.StateDir},
		{"announce.lease", f.cfg.Lease == next.Lease},
		{"sources.services", slices.Equal(services(f.cfg), services(next))},
		{"sources.file", f.cfg.File == next.File},
		{"cache", f.cfg.Cache == next.Cache},
		{"healthListen", f.cfg.HealthListen == next.HealthListen},
		{"log", f.cfg.Log == next.Log},
	} {
		if !p.same {
			fixed = append(fixed, p.name)
		}
	}
	if f.self == nil || reflect.DeepEqual(f.cfg.Announce, next.Announce) {
		return fixed, nil
	}
	return fixed, f.Announce(next.Announce)
}
