// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import "slices"

// Attending names the services that report members at present and have accepted this node's entry.
func (c *Client) Attending() []string {
	var out []string
	for _, sub := range c.subs.all() {
		if s := sub.status.get(); s.State == StateAttending && s.Refused == "" && !slices.Contains(out, sub.service.Name) {
			out = append(out, sub.service.Name)
		}
	}
	return out
}
