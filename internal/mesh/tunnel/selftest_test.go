// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelHas asks the kernel itself whether it knows an option of UDP, and not our self-test.
func kernelHas(t *testing.T, option int) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	err = unix.SetsockoptInt(fd, unix.SOL_UDP, option, 1)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSwitches: what is turned off is off, for that reason and no other. What is wanted is on
// where the kernel has it, and off by the self-test where it has not.
func TestSwitches(t *testing.T) {
	has := map[string]bool{udpGSO: kernelHas(t, unix.UDP_SEGMENT), udpGRO: kernelHas(t, unix.UDP_GRO)}
	t.Logf("this kernel has %v", has)
	for _, want := range []Offloads{{}, {UDPGSO: true}, {UDPGRO: true}, {UDPGSO: true, UDPGRO: true}} {
		s, err := OpenSocket(t.Context(), SocketConfig{Offloads: want})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Offloads()
		for _, f := range s.families {
			if f.gso.Load() != (want.UDPGSO && has[udpGSO]) {
				t.Errorf("of %+v: packets are joined: %v", want, f.gso.Load())
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if len(got) != 2 || got[0].Name != udpGSO || got[1].Name != udpGRO {
			t.Fatalf("the offloads are %+v", got)
		}
		for _, o := range got {
			wanted := map[string]bool{udpGSO: want.UDPGSO, udpGRO: want.UDPGRO}[o.Name]
			is := Offload{Name: o.Name, On: wanted && has[o.Name]}
			switch {
			case !wanted:
				is.Why = "turned off by the configuration"
			case !is.On && strings.HasPrefix(o.Why, "the test over loopback failed: "):
				is.Why = o.Why
			}
			if o != is {
				t.Errorf("of %+v: %+v, want %+v", want, o, is)
			}
		}
	}
}

// TestSelfTestSees what came otherwise than it was sent, and what did not come.
func TestSelfTestSees(t *testing.T) {
	one, other := bytes.Repeat([]byte{1}, 100), bytes.Repeat([]byte{2}, 100)
	for name, c := range map[string]struct {
		sent, want [][]byte
		err        error
	}{
		"all of it":      {[][]byte{one, other}, [][]byte{one, other}, nil},
		"other bytes":    {[][]byte{one, one}, [][]byte{one, other}, unix.EBADMSG},
		"another order":  {[][]byte{other, one}, [][]byte{one, other}, unix.EBADMSG},
		"a piece of it":  {[][]byte{one[:99]}, [][]byte{one}, unix.EBADMSG},
		"more in one":    {[][]byte{bytes.Repeat([]byte{1}, 200)}, [][]byte{one, one}, unix.EBADMSG},
		"one is missing": {[][]byte{one}, [][]byte{one, one}, os.ErrDeadlineExceeded},
		"nothing at all": {nil, [][]byte{one}, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := openFamily(t.Context(), false, 0, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			defer f.conn.Close()
			port := f.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			from, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)))
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			for _, p := range c.sent {
				if _, err := from.Write(p); err != nil {
					t.Fatal(err)
				}
			}
			if err := expect(f, false, c.want); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
	}
}
