// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// wasHere says whether this node was a member under a secret and a name that it has now: who
// was it comes up as it was, and waits for nobody.
func (m *Mesh) wasHere() bool {
	named := namedPrefix(m.cfg.ClusterID)
	return slices.ContainsFunc(m.before.Clusters, func(id string) bool { return slices.Contains(m.clusters(), id) }) &&
		(!named.IsValid() || named == m.before.Prefix)
}

// evidence is what is known now; waiting are the sources that have not told yet. Names are
// looked at too, or the secret alone.
func (m *Mesh) evidence(r roster.Result, waiting []string, names bool) evidence {
	m.mu.Lock()
	chosen := m.cfg.Announce.Overlay6.IsValid()
	own := m.key.public
	m.mu.Unlock()
	e := evidence{secrets: m.clusters(), id: m.cfg.ClusterID, before: m.before, members: sightings(r.Members, names, own), unopened: m.finder.Unopened(), waiting: waiting, nobody: m.cfg.Sourceless}
	if !chosen {
		e.named = namedPrefix(m.cfg.ClusterID)
	}
	return e
}

// assure refuses a start in a cluster that is surely not that of the others, and tells at
// once where it may not be.
func (m *Mesh) assure(r roster.Result, waiting []string) error {
	v := m.evidence(r, waiting, true).judge()
	if len(v.refused) > 0 {
		return joined(v.refused)
	}
	m.tellDoubts(v.doubts)
	if v.alone != "" {
		m.log.Info("no other member is known", "secrets", m.clusters(), telemetry.AttrReason, v.alone)
	}
	return nil
}

// doubt looks again at the secret of a node that runs. What would have refused its start is
// told. Of names elsewhere tells.
func (m *Mesh) doubt(r roster.Result) {
	var v verdict
	v.secret(m.evidence(r, nil, false))
	m.tellDoubts(append(v.refused, v.doubts...))
}

// tellDoubts keeps what is shown, and logs what is new in it.
func (m *Mesh) tellDoubts(now []*fault.Fault) {
	m.mu.Lock()
	before := m.doubts
	m.doubts = now
	m.mu.Unlock()
	for _, f := range now {
		if !slices.ContainsFunc(before, func(o *fault.Fault) bool { return o.Code == f.Code && o.What == f.What }) {
			m.log.Warn("this node may be in another cluster than it should", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
		}
	}
}

// joined is nil without faults.
func joined(faults []*fault.Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
