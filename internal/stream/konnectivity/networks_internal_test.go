// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// networks are what a server may ask an agent for, and whether it is dialled. The reference's agent dials all that Go
// knows, such as unix sockets of its node.
func networks() map[string]bool {
	return map[string]bool{"tcp": true, "": false, "tcp4": false, "TCP": false, "udp": false, "unix": false,
		"unixgram": false, "ip:icmp": false, "tcp\xff": false}
}

// TestAnAgentDialsTCPOnly, by its own judgement: a server that asks for something else is not one of ours.
func TestAnAgentDialsTCPOnly(t *testing.T) {
	for network, taken := range networks() {
		var dials []string
		dial := func(_ context.Context, network, address string) (net.Conn, error) {
			dials = append(dials, network+" "+address)
			near, _ := net.Pipe()
			return near, nil
		}
		judge := func(over, refused string, refuses bool) {
			t.Helper()
			if refuses == taken || refuses && !strings.Contains(refused, "this agent dials tcp, and not ") {
				t.Errorf("%q over %s: the answer is %q", network, over, refused)
			}
			if want := map[bool]string{true: "tcp /run/x:1"}[taken]; strings.Join(dials, ", ") != want {
				t.Errorf("%q over %s: it has dialled %q", network, over, dials)
			}
			dials = nil
		}
		synctest.Test(t, func(t *testing.T) {
			up, down, ended := make(chan packet), make(chan packet), make(chan struct{})
			u := newTestUpstream(t.Context(), wirePair{up, down, ended}, dial)
			served := make(chan error, 1)
			go func() { served <- u.Serve() }()
			down <- packet{kind: dialRequest, body: body{random: 7, protocol: network, address: "/run/x:1"}}
			p := <-up
			if p.kind != dialResponse || p.random != 7 {
				t.Errorf("%q is answered by %v of %d", network, p.kind, p.random)
			}
			judge("packets", p.errText, p.connectID == 0)
			close(ended)
			<-served
		})
		if strings.Contains(network, "\xff") {
			continue // a session cannot have it
		}
		synctest.Test(t, func(t *testing.T) {
			refused, refuses := askSession(t, dial, wire.Dial{Network: network, Address: "/run/x:1"})
			judge("a session", refused, refuses)
		})
	}
}

// askSession has an agent of ours dial by a session, and gives its answer. It is used in a bubble.
func askSession(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), d wire.Dial,
) (refused string, refuses bool) {
	t.Helper()
	near, far := net.Pipe()
	server, err := carrier.Server(near, carrier.Options{Incoming: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	agent, err := carrier.Client(far, carrier.Options{Incoming: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	u := newTestUpstream(t.Context(), nil, dial)
	defer func() {
		u.stop()
		u.group.Stop()
		u.group.Wait()
	}()
	u.group.Go("streams", func(ctx context.Context) error { return u.accept(ctx, agent) })
	request, err := wire.Append(nil, d.Message())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := server.OpenStream(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Reset(1)
	_, _, err = wire.ReadReply(stream, false)
	if err == nil {
		return "", false
	}
	if !fault.Has(err, fault.CodeRequest) {
		t.Errorf("%q: %v", d.Network, err)
	}
	return err.Error(), true
}
