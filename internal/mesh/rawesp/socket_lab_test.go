// SPDX-License-Identifier: Apache-2.0

//go:build lab

package rawesp_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/mesh/rawesp"
)

// TestHeard: what is sent comes, from whom and to whom it was sent; ESP itself does not.
func TestHeard(t *testing.T) {
	defer goleak.VerifyNone(t)
	for network, host := range map[string]string{"ip4:50": "127.0.0.1", "ip6:50": "::1"} {
		t.Run(network, func(t *testing.T) {
			here := netip.MustParseAddr(host)
			s, err := rawesp.Open(t.Context(), 0x20)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			heard, done := make(chan string, 10), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				done <- s.Run(ctx, func(from, local netip.Addr, b []byte) { heard <- fmt.Sprint(from, local, string(b)) })
			}()
			other, err := net.Dial(network, host)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if _, err := other.Write([]byte("\x00\x01\x00\x00\x00\x00\x00\x01 of ESP")); err != nil {
				t.Fatal(err)
			}
			if err := s.Send(here, here, []byte("a trial")); err != nil {
				t.Fatal(err)
			}
			if got, want := <-heard, fmt.Sprint(here, here, "a trial"); got != want {
				t.Errorf("%q was heard, want %q", got, want)
			}
			cancel()
			if err := <-done; err != nil || len(heard) > 0 {
				t.Errorf("%d more were heard; %v", len(heard), err)
			}
		})
	}
}
