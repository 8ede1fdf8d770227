// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/link/check"
)

// asked is a name that each cluster has, unless its domain is another one: then the answer is that there is none.
const asked = "kubernetes.default.svc.cluster.local."

// ask asks the DNS Service of a cluster, by UDP. Any answer will do.
func ask(ctx context.Context, s Server) check.Names {
	out := check.Names{Cluster: s.Cluster, Server: s.At, Echo: check.Echo{To: s.At}}
	for range 2 {
		if !s.At.IsValid() || out.Answered {
			break
		}
		began := time.Now()
		err := question(ctx, s.At)
		out.Answered, out.RTT = err == nil, float64(time.Since(began).Microseconds())/1000
		if err != nil {
			out.Why = err.Error()
		}
	}
	return out
}

func question(parent context.Context, at netip.Addr) error {
	ctx, cancel := context.WithTimeout(parent, try)
	defer cancel()
	id := uint16(rand.Uint32())
	name, err := dnsmessage.NewName(asked)
	if err != nil {
		return err
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	text, err := m.Pack()
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(at, 53).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer run.OnDone(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(text); err != nil {
		return err
	}
	for b := make([]byte, 4096); ; {
		n, err := conn.Read(b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if answers(b[:n], id) {
			return nil
		}
	}
}

// answers reports whether a packet answers our question.
func answers(b []byte, id uint16) bool {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	return err == nil && h.Response && h.ID == id
}
