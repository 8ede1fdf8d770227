// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/ecdh"
	"errors"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// RotateKey begins to put a new key pair into the old one's place. It is on disk before
// anybody hears of it: after a crash the change goes on.
func (m *Mesh) RotateKey() (Rotated, error) {
	if m.cfg.Engine == meshconf.Kernel { // before anything is on disk
		return Rotated{}, wireguard.NoRotation()
	}
	m.rotating.Lock()
	defer m.rotating.Unlock()
	m.mu.Lock()
	busy := !m.keys.next.isZero()
	m.mu.Unlock()
	if _, is := m.peering.Rotating(); is || busy {
		return Rotated{}, fault.New(fault.CodeStateBusy, "the key is not rotated").Whyf("another rotation is under way").
			Hint("'tombolo mesh status' tells which peers it waits for")
	}
	next, err := drawKey()
	if err != nil {
		return Rotated{}, err
	}
	m.mu.Lock()
	k, err := m.keys.begin(m.cfg.StateDir, next)
	m.keys = k
	m.mu.Unlock()
	if err != nil {
		return Rotated{}, err
	}
	if err := m.rotate(next); err != nil {
		m.mu.Lock()
		k, left := m.keys.drop(m.cfg.StateDir)
		m.keys = k
		m.mu.Unlock()
		return Rotated{}, errors.Join(err, left)
	}
	ring(m.say)
	r, _ := m.peering.Rotating()
	m.mu.Lock()
	defer m.mu.Unlock()
	return Rotated{meta(KindRotation), Rotation{Since: r.Began, Until: r.Until, Next: next.public.String(), Peers: len(m.peers)}}, nil
}

func (m *Mesh) rotate(next key) error {
	private, err := ecdh.X25519().NewPrivateKey(next.raw[:])
	if err != nil {
		return fault.New(fault.CodeInternal, "the new key is none of X25519").Because(err)
	}
	return m.peering.Rotate(private, m.finder.Lease())
}

// resume goes on with a change that the last run has left; one that was asked for since
// the engine is there is under way already.
func (m *Mesh) resume() error {
	m.rotating.Lock()
	defer m.rotating.Unlock()
	m.mu.Lock()
	next := m.keys.next
	m.mu.Unlock()
	if _, is := m.peering.Rotating(); is || next.isZero() {
		return nil
	}
	if err := m.rotate(next); err != nil { // the node lives on with the key that it has
		m.mu.Lock()
		k, left := m.keys.drop(m.cfg.StateDir)
		m.keys = k
		m.mu.Unlock()
		m.log.Error("the change of keys that the last run has begun is given up", telemetry.AttrReason, errors.Join(err, left))
	}
	ring(m.say)
	return nil
}

// turned is told that the new key pair has taken the old one's place.
func (m *Mesh) turned(member.Key) { ring(m.turns) }

// followRotation goes on with a change of keys that was under way when the last run
// ended, and puts the new key into the old one's place on disk once it is over.
func (m *Mesh) followRotation(ctx context.Context) error {
	if err := m.resume(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.turns:
			m.place(keys.end)
		case <-m.owed():
			m.place(keys.place)
		}
	}
}

// owed is when the key in force is tried to be put into its place on disk again; never, if
// it is there.
func (m *Mesh) owed() <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys.owed == nil {
		return nil
	}
	return time.After(limit.MeshKeep)
}

// place has the disk follow the keys. Where it cannot, the key in force counts all the same:
// a start until then does the change again.
func (m *Mesh) place(step func(keys, string) (keys, error)) {
	m.mu.Lock()
	before := m.keys.owed
	k, err := step(m.keys, m.cfg.StateDir)
	m.keys = k
	m.mu.Unlock()
	switch {
	case err != nil && before == nil:
		m.log.Error("the rotation of keys has ended, and not on disk", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
	case err == nil && before != nil:
		m.log.Info("the new key is in its place on disk now")
	}
	ring(m.say)
}
