// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"sync"

	"github.com/tombolo-io/tombolo/test/roles"
)

// relayArgs start one half of a relay over plain TLS, with the hops of a hub and
// an agent: the entry takes a connection on a unix socket and dials TLS at once,
// the exit takes TLS and dials the backend at once.
type relayArgs struct {
	Entry  bool         `json:"entry"`
	Listen string       `json:"listen"` // a path at the entry, an IP at the exit
	Target string       `json:"target"`
	Creds  *credentials `json:"creds"`
}

// relay is the role of both halves.
type relay struct {
	traffic
	args    relayArgs
	conf    *tls.Config
	ln      net.Listener
	targets *direct
	pool    buffers
}

func (r *relay) counters() *traffic { return &r.traffic }

func (r *relay) do(op string, raw json.RawMessage) (_ any, err error) {
	if op != opStart {
		return nil, roles.ErrUnknown
	}
	if r.args, err = roles.Arguments[relayArgs](raw); err != nil {
		return nil, err
	}
	if r.conf, err = r.args.Creds.tls(); err != nil {
		return nil, err
	}
	r.targets = &direct{addresses: spread(r.args.Target), dial: dialTCP}
	if r.args.Entry {
		r.targets = &direct{addresses: []string{r.args.Target}, dial: dialPlainTLS(r.conf)}
		r.ln, err = net.Listen("unix", r.args.Listen)
	} else {
		r.ln, err = net.Listen("tcp", net.JoinHostPort(r.args.Listen, "0"))
	}
	if err != nil {
		return nil, err
	}
	go r.accept()
	return started{Address: r.ln.Addr().String()}, nil
}

func (r *relay) accept() {
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			return // closed
		}
		go r.join(conn)
	}
}

func (r *relay) join(near net.Conn) {
	if !r.args.Entry {
		near = tls.Server(near, r.conf)
	}
	far, err := r.targets.next(context.Background())
	if err != nil {
		near.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.one(far, near) })
	both.Go(func() { r.one(near, far) })
	both.Wait()
	near.Close()
	far.Close()
}

// one copies one direction and passes its end on.
func (r *relay) one(to, from net.Conn) {
	r.pool.copy(to, from)
	if h, ok := to.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
	}
}
