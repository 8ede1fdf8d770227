// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh"
)

// printAssociations prints the tunnels of IPsec to a peer, as rows of a table.
func printAssociations(w io.Writer, p mesh.Peer, now time.Time) {
	if p.ESP != "" {
		fmt.Fprintf(w, "  esp\t%s\n", p.ESP)
	}
	for _, a := range p.SecurityAssociations {
		fmt.Fprintf(w, "  ipsec %s to %s\t%s\t%s\n", a.Local, a.To(), a.Cipher, associationText(a, now))
	}
}

func printIPsecErrors(w io.Writer, st mesh.Status) {
	for _, e := range st.IPsecErrors {
		fmt.Fprintf(w, "dropped: %s: %s: %s\n", e.Name, plural(int(e.Packets), "packet"), e.Means)
	}
}

// associationText is what a tunnel of IPsec does, and for how long.
func associationText(a mesh.SecurityAssociation, now time.Time) string {
	begun := "there"
	if a.Here {
		begun = "here"
	}
	state := "receives"
	switch {
	case !a.Ends.IsZero():
		state = "receives, and goes in " + span(a.Ends.Sub(now))
	case a.Sends:
		state = "sends and receives"
	}
	return fmt.Sprintf("SPI %s in, %s out, %s, begun %s %s ago, %s sent, %d received", a.SPIIn,
		cmp.Or(a.SPIOut, "none"), state, begun, span(now.Sub(a.Since)), plural(int(a.Packets[0]), "packet"), a.Packets[1])
}
