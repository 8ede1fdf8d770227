// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListsLoopback(t *testing.T) {
	all, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(a nat.Address) bool {
		return a.Interface == "lo" && a.Prefix == netip.MustParsePrefix("127.0.0.1/8") && a.Up && !a.Tentative && !a.Deprecated && !a.Temporary
	}) {
		t.Errorf("%+v", all)
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Watch(ctx, func() { t.Error("told of nothing") }); err != nil {
		t.Error(err)
	}
}

// TestAWatchTellsThatItHasBegun: what comes after is told, and who looks then misses nothing.
func TestAWatchTellsThatItHasBegun(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	told := 0
	if err := Watch(ctx, func() { told++; stop() }); err != nil || told != 1 {
		t.Errorf("told %d times: %v", told, err)
	}
}

// TestDefaultsAreThoseOfTheGateway: what Gateway takes is among them.
func TestDefaultsAreThoseOfTheGateway(t *testing.T) {
	all, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	gw, _, err := Gateway()
	if has := slices.ContainsFunc(all, func(d Default) bool { return d.Gateway == gw && d.Interface > 0 }); err == nil && !has {
		t.Errorf("%+v, and the gateway is %v", all, gw)
	}
}

func TestAMachineThatDoesNotSleepIsNotSaidTo(t *testing.T) {
	before, err := slept()
	if err != nil || before < 0 {
		t.Fatalf("%v, %v", before, err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := Sleeps(ctx, func(d time.Duration) { t.Errorf("slept for %v", d) }); err != nil {
			t.Error(err)
		}
	})
}

// TestASleepIsTold: the clocks are as after a sleep.
func TestASleepIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		clock []time.Duration
		told  []time.Duration
	}{
		"no sleep": {clock: []time.Duration{5, 5, 5}},
		"a minute": {clock: []time.Duration{0, time.Minute, time.Minute}, told: []time.Duration{time.Minute}},
		"twice":    {clock: []time.Duration{0, time.Minute, time.Minute + 2*time.Second}, told: []time.Duration{time.Minute, 2 * time.Second}},
		"a blink":  {clock: []time.Duration{0, time.Millisecond, time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []time.Duration
			s := sleeper{last: c.clock[0], tell: func(d time.Duration) { told = append(told, d) }}
			for _, now := range c.clock[1:] {
				s.look(now)
			}
			if !slices.Equal(told, c.told) {
				t.Errorf("told %v, want %v", told, c.told)
			}
		})
	}
}
