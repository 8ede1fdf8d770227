// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// fakeProgram is a shell script in place of OpenVPN. It dies with the test.
func fakeProgram(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "openvpn")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProcessThatEnds: why it does not run is told, each time, and it is started again.
func TestProcessThatEnds(t *testing.T) {
	var mu sync.Mutex
	var told []string
	starts := 0
	dir := runtest.Dir(t)
	p := &process{
		program: fakeProgram(t, "cat \"$2\"; echo 'Options error: it is odd' >&2; echo 'Use --help for more information.'; exit 1"), dir: dir, log: slog.New(slog.DiscardHandler),
		prepare: func() (map[string][]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			starts++
			return map[string][]byte{configName: []byte("dev x\n")}, nil
		},
		handle: func(openvpn.Event, func(string)) {}, tick: func(func(string)) {}, every: time.Hour, again: make(chan struct{}, 1),
		ended: func(f *fault.Fault) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, f.Error())
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	runtest.Eventually(t, "it is started twice", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return starts > 1
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(told) == 0 || !strings.Contains(told[0], "Options error: it is odd") || !strings.Contains(told[0], "vpn_down") {
		t.Errorf("%q", told)
	}
}

func TestPause(t *testing.T) {
	for ends, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 4: 15 * time.Second,
		1000: 15 * time.Second} {
		if got := pause(ends); got != want {
			t.Errorf("after %d ends: %v, want %v", ends, got, want)
		}
	}
}

// TestProcessIsMissing: the remedy is in the fault.
func TestProcessIsMissing(t *testing.T) {
	for what, path := range map[string]string{
		"missing": "/there/is/none", "too old": fakeProgram(t, "echo 'OpenVPN 2.5.9 x86_64'; exit 1"),
		"another program": fakeProgram(t, "echo hello"),
	} {
		_, err := version(t.Context(), path)
		if f := fault.From(err); !fault.Has(err, fault.CodeUnsupported) || f.Next == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if v, err := version(t.Context(), fakeProgram(t, "echo 'OpenVPN 2.6.14 x86_64'; exit 1")); err != nil || v != "2.6.14" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestManagementSocketIsTaken(t *testing.T) {
	dir := runtest.Dir(t)
	path := filepath.Join(dir, "in-the-way")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); !fault.Has(err, fault.CodeConfig) || fault.From(err).Next == "" {
		t.Errorf("%v", err)
	}
	for range 2 { // one that a killed OpenVPN left
		ln, err := listen(socketOf(filepath.Join(dir, "openvpn")))
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
}

// TestALongRunDir: nothing starts where the management socket could not be made.
func TestALongRunDir(t *testing.T) {
	dir := t.TempDir()
	if err := mkdirs(filepath.Join(dir, strings.Repeat("x", 100))); !fault.Has(err, fault.CodeSocketPath) {
		t.Error(err)
	}
	if err := mkdirs(filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
}

// TestDeadKey: a key that is none is refused before anything starts, and never shown.
func TestDeadKey(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "tls.key")
	if err := os.WriteFile(key, []byte("-----BEGIN OpenVPN Static key V1-----\nabcdef\n-----END OpenVPN Static key V1-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := common{}
	c.OpenVPN.TLSCrypt = key
	c.Identity.Certificate, c.Identity.Key, c.Identity.CA = writeIdentity(t, dir)
	_, err := c.read("vpn-client")
	if f := fault.From(err); !fault.Has(err, fault.CodeConfig) || !strings.Contains(f.Next, "tombolo vpn key") || strings.Contains(f.Error(), "abcdef") {
		t.Errorf("%v", err)
	}
}

// TestGranted: a server gives addresses of its transfer networks, and no others.
func TestGranted(t *testing.T) {
	v4 := transfer{V4: netip.MustParsePrefix("192.168.123.0/24")}
	for _, test := range []struct {
		at4, at6 string
		ok       bool
	}{
		{"192.168.123.2", "", true}, {"10.0.0.1", "", false}, {"", "", false}, {"192.168.123.2", "fd00::1", false},
		{"192.168.124.2", "", false},
	} {
		var s openvpn.State
		s.Address4, _ = netip.ParseAddr(test.at4)
		s.Address6, _ = netip.ParseAddr(test.at6)
		if _, f := granted(s, v4); (f == nil) != test.ok {
			t.Errorf("%+v: %v", test, f)
		}
	}
}

// TestApart: a range that this machine has itself is refused with both.
func TestApart(t *testing.T) {
	h := host{around: func([]string) []network.Part {
		return []network.Part{{What: "which this machine has at eth0", Range: netip.MustParsePrefix("10.244.3.0/24")}}
	}}
	one := func(text string) []network.Part {
		return []network.Part{{What: "a range of cluster c1", Range: netip.MustParsePrefix(text)}}
	}
	if err := h.apart([]string{"x"}, one("10.96.0.0/12")); err != nil {
		t.Error(err)
	}
	err := h.apart([]string{"x"}, one("10.244.0.0/16"))
	if text := fmt.Sprint(err); !fault.Has(err, fault.CodeConfig) || !strings.Contains(text, "10.244.0.0/16") || !strings.Contains(text, "10.244.3.0/24") {
		t.Error(err)
	}
}
