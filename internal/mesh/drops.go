// SPDX-License-Identifier: Apache-2.0

package mesh

// dropped is how many packets the tunnel has dropped for a reason.
func (m *Mesh) dropped(reason string) float64 {
	p := m.parts.Load()
	if p == nil {
		return 0
	}
	for _, d := range p.carrier.Drops() {
		if d.Reason == reason {
			return float64(d.Packets)
		}
	}
	return 0
}

// dropsInto tells what the tunnel has dropped, every reason that there is.
func (p *parts) dropsInto(s *Status) {
	for _, d := range p.carrier.Drops() {
		s.TunnelDropped = append(s.TunnelDropped, Dropped{d.Reason, d.Packets})
	}
}
