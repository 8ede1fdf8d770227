// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import "slices"

// Attending are the names of the services that tell this node of members now, and have
// taken its own word.
func (f *Client) Attending() []string {
	var out []string
	for _, c := range f.subscriptions() {
		if s := c.status.get(); s.State == StateAttending && s.Refused == "" && !slices.Contains(out, c.service.Name) {
			out = append(out, c.service.Name)
		}
	}
	return out
}
