// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/psk"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Secret is one that this node and a peer are both members under.
type Secret struct {
	ID  seal.ClusterID
	PSK tunnel.Secret // of the pair: seal.Keys.PairPSK
}

// Peer is another node, as its owner wants it.
type Peer struct {
	ID   string     // as topology has it
	Name string     // as relays know it
	Key  member.Key // of WireGuard
	Pin  member.Pin // of its certificate for IPsec
	// Engine is what carries its packets. One with another engine than this node's is no peer.
	Engine member.Engine
	// Elsewhere says that another engine of this node carries its packets: it is no peer, and its ranges are the mesh's.
	Elsewhere bool
	// Proven says that the member with this ID is shown to have Key: the name that a hub has
	// vouched for stays with it when the key changes.
	Proven bool
	// Secrets are the common ones, the newest first, by the keys of both.
	Secrets func(own, peer member.Key) []Secret
	Facts   path.Facts
	// Together says that it is asked as soon as another such peer is in doubt: they may be lost together.
	Together bool
	Ranges   []netip.Prefix // topology's Allowed: they lie within the mesh
	Sources  []netip.Prefix // topology's Sources: addresses outside of it, from which it may send too
}

// peer is one that is in force. All but what Set gives is under mu.
type peer struct {
	Peer
	path *path.Peer
	link *link

	via    path.Path // that the engine has
	told   bool      // false: the engine has just got the peer's key
	from   netip.Addr
	state  path.State
	size   int            // of the largest IP packet that passes the path in use, once it is known
	heard  seal.ClusterID // the secret of its newest valid probe; zero: none
	locals map[path.Path]*local
	direct window // pings and calls by the path in use
	other  window // and by others

	packet       time.Time // the newest one with content that is known of
	wanted       time.Time // the newest wake
	asked        time.Time // the handshake that waited when it was last looked
	asks         bool      // pings say that it answers none
	missedByPeer time.Time // when the peer last said that we answer none of its own
	lookAt       time.Time // when its traffic is looked at next
	unsent       error
	doubt        bool // the path in use has missed a ping
	alone        bool // it reaches no other node of its cluster, as it says
	aloneAt      time.Time
	certifiedAs  string // name of the certificate by which a hub has led a probe of its key

	touched bool
	gone    bool
	due     time.Time
	at      int // in the heap, from 1; 0: not there
}

// link is what depends on the two keys of a pair, ours and the peer's: pairs for probes, and what is
// known of WireGuard's session. It is never changed, but for the session, which is under mu.
type link struct {
	of      *peer
	own     *own
	key     member.Key
	patient bool // this node has the greater key: see psk.Facts
	secrets []Secret
	pairs   []*disco.Pair // of the secrets
	*session
}

// session is what is known of WireGuard's between two keys.
type session struct {
	made           time.Time
	rekeyed        bool // the peer has had another key before: this node begins the handshake
	psk            psk.State[seal.ClusterID]
	handshake      time.Time // the newest, by the wall clock
	shook          time.Time // when it was seen
	tried          time.Time // when one was last asked for
	demandSince    time.Time // since when the peer has traffic for us, while there is no session
	sent, received uint64    // bytes
}

// local are the addresses of this machine that a path leaves from.
type local struct {
	answered netip.Addr // where the last pong came to
	heard    netip.Addr // where the last ping came to
	turns    int
}

// window counts what came within a second.
type window struct {
	began time.Time
	n     int
}

// take reports whether one more may come.
func (w *window) take(now time.Time, most int) bool {
	if w.began.IsZero() || now.Sub(w.began) >= time.Second {
		*w = window{began: now}
	}
	w.n++
	return w.n <= most
}

// newLink derives the keys of a pair. Of the former link of the peer all that still holds is kept.
func newLink(f Peer, o *own, x *peer) (*link, error) {
	secrets := f.Secrets(o.key, f.Key)
	secrets = secrets[:min(len(secrets), peeringSecrets)]
	if len(secrets) == 0 {
		return nil, fault.Newf(fault.CodeSecret, "peer %s", f.Name).Whyf("it and this node have no secret in common")
	}
	was := x.link
	l := &link{of: x, own: o, key: f.Key, patient: bytes.Compare(o.key[:], f.Key[:]) > 0, secrets: secrets}
	if was != nil && was.own == o && was.key == f.Key {
		l.session = was.session
	} else {
		l.session = &session{made: time.Now(), rekeyed: was != nil && was.key != f.Key}
		was = nil
	}
	for _, s := range secrets {
		pair := was.pair(s)
		if pair == nil {
			var err error
			if pair, err = disco.NewPair(o.private, f.Key, s.PSK.Bytes()); err != nil {
				return nil, fault.Newf(fault.CodeEntryInvalid, "peer %s", f.Name).Because(err).
					Hint("make that node a new key: 'tombolo mesh keys rotate'")
			}
		}
		l.pairs = append(l.pairs, pair)
	}
	return l, nil
}

// pair finds that of a secret.
func (l *link) pair(s Secret) *disco.Pair {
	if l == nil {
		return nil
	}
	i := slices.IndexFunc(l.secrets, func(o Secret) bool { return o.ID == s.ID && o.PSK.Equal(s.PSK) })
	if i < 0 {
		return nil
	}
	return l.pairs[i]
}

// common are the ids of the secrets.
func (l *link) common() []seal.ClusterID {
	out := make([]seal.ClusterID, len(l.secrets))
	for i, s := range l.secrets {
		out[i] = s.ID
	}
	return out
}

// inForce is the preshared key that handshakes are made with.
func (l *link) inForce() tunnel.Secret {
	for _, s := range l.secrets {
		if s.ID == l.psk.Use {
			return s.PSK
		}
	}
	return l.secrets[0].PSK
}

// turnPSK chooses the preshared key again, and reports whether it is another one.
func (l *link) turnPSK(now, asked time.Time) bool {
	was := l.psk.Use
	l.psk = psk.Next(l.psk, psk.Facts[seal.ClusterID]{Common: l.common(), Asked: asked, Patient: l.patient}, now)
	return l.psk.Use != was
}

// speak returns the keys for probes to a peer: under the secret of the newest probe from it, else
// under the newest one.
func (x *peer) speak() *disco.Pair {
	for i, s := range x.link.secrets {
		if s.ID == x.heard {
			return x.link.pairs[i]
		}
	}
	return x.link.pairs[0]
}

// leave is the address of this machine that a packet to a path leaves from: the one that
// answers came to, so that pings go as packets do; and in turns the one that was pinged, or
// what the kernel chooses, until an answer comes.
func (x *peer) leave(w path.Path) netip.Addr {
	l := x.locals[w]
	if l == nil || !w.Direct() {
		return netip.Addr{}
	}
	if w == x.path.Path() && l.answered.IsValid() {
		return l.answered
	}
	l.turns++
	switch l.turns % 3 {
	case 1:
		return l.answered
	case 2:
		return l.heard
	}
	return netip.Addr{}
}

// localOf makes what is known of a path's local addresses. It is bounded: whoever replays a
// ping from many addresses makes us forget, and no more.
func (x *peer) localOf(w path.Path) *local {
	l := x.locals[w]
	if l == nil {
		if len(x.locals) >= peeringLocals {
			kept := x.locals[x.path.Path()]
			x.locals = map[path.Path]*local{}
			if kept != nil {
				x.locals[x.path.Path()] = kept
			}
		}
		l = &local{}
		x.locals[w] = l
	}
	return l
}

// dueHeap has the peer that is due first on top.
type dueHeap []*peer

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i+1, j+1 }
func (h *dueHeap) Push(v any) {
	x := v.(*peer)
	*h = append(*h, x)
	x.at = len(*h)
}

func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.at = 0
	return x
}

// plan puts a peer where its time is; the zero time takes it out.
func (h *dueHeap) plan(x *peer, due time.Time) {
	x.due = due
	switch {
	case due.IsZero() && x.at > 0:
		heap.Remove(h, x.at-1)
	case due.IsZero():
	case x.at > 0:
		heap.Fix(h, x.at-1)
	default:
		heap.Push(h, x)
	}
}
