// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func addrPorts(texts ...string) []netip.AddrPort {
	out := make([]netip.AddrPort, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddrPort(s)
	}
	return out
}

// TestAskHub: nothing but what the agent allows is dialled, whatever the hub says.
func TestAskHub(t *testing.T) {
	allowed := addrPorts("10.0.0.1:443", "10.0.0.2:443", "[fd00::1]:443")
	choose := func(texts ...string) func(carrier.Stream) error {
		return func(s carrier.Stream) error { return wire.Write(s, wire.Choice(addrPorts(texts...))) }
	}
	for name, c := range map[string]struct {
		hub  func(carrier.Stream) error
		want []netip.AddrPort
		code fault.Code
	}{
		"all, in another order":           {choose("[fd00::1]:443", "10.0.0.2:443", "10.0.0.1:443"), allowed, ""},
		"one":                             {choose("10.0.0.2:443"), allowed[1:2], ""},
		"one twice":                       {choose("10.0.0.2:443", "10.0.0.2:443"), allowed[1:2], ""},
		"one and one that is not allowed": {choose("169.254.169.254:80", "10.0.0.1:443"), allowed[:1], ""},
		"one that is not allowed":         {choose("169.254.169.254:80"), nil, fault.CodePolicyDenied},
		"another port":                    {choose("10.0.0.1:22"), nil, fault.CodePolicyDenied},
		"nothing":                         {choose(), nil, fault.CodeDialCanceled},
		"a reset":                         {func(s carrier.Stream) error { return s.Reset(3) }, nil, fault.CodeDialCanceled},
		"an end":                          {carrier.Stream.CloseWrite, nil, fault.CodeDialCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := streams(t)
			told := make(chan error, 1)
			go func() {
				_, offered, err := wire.ReadReply(there, true)
				if err == nil && !slices.Equal(offered, allowed) {
					err = errors.New("other addresses were offered")
				}
				told <- errors.Join(err, c.hub(there))
			}()
			got, err := askHub(t.Context(), here, allowed)
			if !slices.Equal(got, c.want) || c.code == "" && err != nil || c.code != "" && !fault.Has(err, c.code) {
				t.Errorf("%v, %v, want %v %s", got, err, c.want, c.code)
			}
			if err := <-told; err != nil {
				t.Errorf("the hub: %v", err)
			}
		})
	}
}

// TestAskHubHasABound: a hub that does not answer holds a dial no longer than the dial may take.
func TestAskHubHasABound(t *testing.T) {
	here, _ := streams(t)
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if got, err := askHub(ctx, here, addrPorts("10.0.0.1:443")); !fault.Has(err, fault.CodeDialCanceled) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// streams is one stream from both ends: that of the agent, and that of the hub.
func streams(t *testing.T) (agent, hub carrier.Stream) {
	t.Helper()
	p := carriertest.Memory(carriertest.MemoryOptions{})
	t.Cleanup(func() { p.A.Close(); p.B.Close() })
	hub, err := p.B.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if agent, err = p.A.AcceptStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Reset(0); hub.Reset(0) })
	return agent, hub
}
