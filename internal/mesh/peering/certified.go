// SPDX-License-Identifier: Apache-2.0

package peering

// certify notes that a hub has led a valid probe of a peer from the node whose certificate has a
// name: who holds the peer's key is that node. The caller holds mu.
func (p *Peering) certify(x *peer, name string) {
	if name == "" || x.certifiedAs == name {
		return
	}
	x.certifiedAs = name
	p.health.Store(true)
	p.news.Ring()
}

// certified reports whether a hub has vouched for a peer's name. The caller holds mu.
func (x *peer) certified() bool { return x.certifiedAs != "" && x.certifiedAs == x.Name }
