// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// RotateKey replaces the key pair of this node. Every session ends; a peer begins a new one as soon
// as discovery has told it the new key. The new key is on disk before it is used: after a crash the
// node has the one or the other.
func (m *Mesh) RotateKey() (Rotated, error) {
	m.rotating.Lock()
	defer m.rotating.Unlock()
	if len(m.cfg.Services) > 0 && len(m.finder.Attending()) == 0 {
		return Rotated{}, fault.New(fault.CodeServiceAway, "the key is not rotated").
			Whyf("no discovery service would tell the other members the new key").
			Hint("'tombolo discovery members' shows the services, and why they are away")
	}
	m.mu.Lock()
	was := m.key
	m.mu.Unlock()
	next, err := drawKey()
	if err != nil {
		return Rotated{}, err
	}
	private, err := next.private()
	if err != nil {
		return Rotated{}, err
	}
	path := filepath.Join(m.cfg.StateDir, keyFile)
	if err := writeKey(path, next); err != nil {
		return Rotated{}, err
	}
	if err := m.peering.Rotate(private); err != nil {
		return Rotated{}, errors.Join(err, writeKey(path, was))
	}
	m.mu.Lock()
	m.key = next
	out := Rotated{meta(KindRotation), next.public.String(), was.public.String(), len(m.peers)}
	m.mu.Unlock()
	ring(m.say)
	return out, nil
}
