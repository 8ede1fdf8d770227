// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// stalls measures what 4 streams carry, two in each direction, alone and beside
// streams that nobody reads, of which each end reads half of them not.
func stalls() measurement {
	return measurement{
		name: "stalls", about: "4 streams beside so many that nobody reads, against the same 4 alone",
		transports: []string{"mux1", "mux2", "mux4", "yamux1"}, rounds: 3,
		variants: []string{"1", "8", "64", "1000"}, main: kept, crew: pair, sample: sampleStalls,
	}
}

func sampleStalls(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
	n, err := strconv.Atoi(s.variant)
	if err != nil {
		return nil, err
	}
	window := func() error { return pause(ctx, b.window) }
	others := bulkArgs{Down: 2, Up: 2}
	alone, err := b.flow(ctx, c, others, "", window)
	if err != nil {
		return nil, err
	}
	if err := c.load.Call(ctx, opStall, 0, stallArgs{Down: n - n/2, Up: n / 2}, nil); err != nil {
		return nil, err
	}
	if err := c.stuck(ctx); err != nil {
		return nil, err
	}
	beside, err := b.flow(ctx, c, others, s.profile, window) // its halt ends the stalled ones too
	if err != nil {
		return nil, err
	}
	return values{kept: beside.rate() / alone.rate(), rate: beside.rate(), cost: beside.cost()}, nil
}

// stuck waits until the senders of stalled streams send no more.
func (c *crew) stuck(ctx context.Context) error {
	const look, most = 150 * time.Millisecond, 15 * time.Second
	for end := time.Now().Add(most); time.Now().Before(end); {
		r, err := c.measure(ctx, "", func() error { return pause(ctx, look) })
		if err != nil {
			return err
		}
		if r.load.Sent+r.far.Sent == 0 {
			return nil
		}
	}
	return fmt.Errorf("senders still send after %v to streams that nobody reads: there is no flow control", most)
}
