// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import "slices"

// Attending are the names of the services that tell this node of members now, and have
// taken its own word.
func (c *Client) Attending() []string {
	var out []string
	for _, sub := range c.subs.all() {
		if s := sub.status.get(); s.State == StateAttending && s.Refused == "" && !slices.Contains(out, sub.service.Name) {
			out = append(out, sub.service.Name)
		}
	}
	return out
}
