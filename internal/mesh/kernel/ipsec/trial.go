// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// trialLink is the link of Able. No mesh.link can have a tilde in front.
const trialLink = "~tombolo"

// errOccupied says that Able cannot have its link.
var errOccupied = errors.New("its name, or each id that was tried, is in use")

// openTrial makes the link of Able, which is never up, with an id that is nobody's: those of meshes have the highest
// bit (ID), and links of others that have it are found out. To make the link is to have it alone: another program that
// tries here at the same time is waited for. What has not gone by then was left by one that was killed, and goes first.
func openTrial(ctx context.Context) (*Device, error) {
	d, err := open(Settings{Link: trialLink, MTU: 1280})
	if err != nil {
		return nil, err
	}
	for range trialTries {
		if err = d.awaitTrial(ctx); err != nil {
			break
		}
		d.s.ID = trialID()
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = trialLink, d.s.MTU
		if err = d.nl.LinkAdd(&netlink.Xfrmi{LinkAttrs: attrs, Ifid: d.s.ID}); !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	if err != nil {
		d.close()
	}
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, unix.EEXIST):
		return nil, fault.New(fault.CodeClash, "the link "+trialLink).Because(errOccupied).
			Hint("see what it is with ip -d link, and remove it with ip link delete %s", trialLink)
	}
	return nil, failed("making the link "+trialLink, err)
}

// trialID draws an id that no mesh can have, and not 0.
func trialID() uint32 { return rand.Uint32N(1<<31-1) + 1 }

// awaitTrial waits until nobody has the link of Able. One that stays was left by a killed trial, and is removed with
// all that has its id.
func (d *Device) awaitTrial(ctx context.Context) error {
	var last uint32
	same := 0
	for range trialLooks {
		link, err := d.nl.LinkByName(trialLink)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		} else if err != nil {
			return err
		}
		x, is := link.(*netlink.Xfrmi)
		if !is || x.Ifid == 0 || x.Ifid&meshes != 0 || x.RawFlags&unix.IFF_UP != 0 {
			return unix.EEXIST // no trial's
		}
		if x.Ifid != last {
			last, same = x.Ifid, 0
		}
		if same++; same > trialSame {
			left := &Device{s: Settings{Link: trialLink, ID: x.Ifid}, nl: d.nl, socket: d.socket}
			_, err := left.clear()
			return err
		}
		if !run.Wait(ctx, trialPause) {
			return ctx.Err()
		}
	}
	return unix.EEXIST
}
