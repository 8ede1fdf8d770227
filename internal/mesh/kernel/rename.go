// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A link keeps its index when it is renamed: by that it is still ours, and gets
// its name back. The chains of our table and those who ask for the mesh go by the name.

// know notes the index of the link that has our name. Where another one has the name, and
// ours another name, nothing is to be put on either.
func (k *Kernel) know(index int) error {
	if k.index != 0 && k.index != index {
		was, err := k.renamed()
		if err != nil {
			return err
		}
		if was != nil {
			name := was.Attrs().Name
			return k.clash("link "+k.names.Link, "the link of %s was renamed to %s, and another one has its name",
				k.names.user(), name).
				Hint("give the other one another name, or remove it with ip link delete %s: %s then takes the name back",
					k.names.Link, k.names.user())
		}
	}
	k.index = index
	return nil
}

// renamed is the link that was ours when it was last seen, whatever its name; nil if it
// is gone.
func (k *Kernel) renamed() (netlink.Link, error) {
	if k.index == 0 {
		return nil, nil
	}
	link, err := k.route.LinkByIndex(k.index)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, nil
	case err != nil:
		return nil, reading("links", err)
	case !tunnels(link):
		return nil, nil
	}
	return link, nil
}

// reclaim gives our link its name back. Where it was not renamed why stands.
func (k *Kernel) reclaim(name string, why error) (netlink.Link, error) {
	if !errors.As(why, new(netlink.LinkNotFoundError)) {
		return nil, why
	}
	link, err := k.renamed()
	if err != nil {
		return nil, err
	}
	if link == nil {
		return nil, why
	}
	err = k.route.LinkSetName(link, name)
	if errors.Is(err, unix.EBUSY) { // before Linux 6.3 a link has to be down for that
		if err = k.route.LinkSetDown(link); err == nil {
			err = k.route.LinkSetName(link, name)
		}
	}
	if err != nil {
		return nil, err
	}
	return k.route.LinkByName(name)
}
