// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestListenSpreadIsAllOrNothing: where a port is taken on the last address, it is left free on all others.
// Others share this machine and may take a port in between, so that several are tried.
func TestListenSpreadIsAllOrNothing(t *testing.T) {
	var err error
	for range 20 {
		if err = refusedThenTaken(t); err == nil {
			return
		}
	}
	t.Errorf("what failed to listen has kept a port, 20 times: %v", err)
}

// refusedThenTaken has listenSpread refused for one address, then frees that and listens.
func refusedThenTaken(t *testing.T) error {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.8:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	address := net.JoinHostPort("127.0.0.1", port)
	if got, err := listenSpread(address); !errors.Is(err, syscall.EADDRINUSE) || got != nil {
		t.Fatalf("%d listeners, %v, want none and EADDRINUSE", len(got), err)
	}
	taken.Close()
	got, err := listenSpread(address)
	for _, ln := range got {
		ln.Close()
	}
	if err == nil && len(got) != len(spread(address)) {
		t.Fatalf("%d listeners, want %d", len(got), len(spread(address)))
	}
	return err
}
