// SPDX-License-Identifier: Apache-2.0

package mesh

import "context"

// Join gets the node's certificate where it has none yet, before anything is changed.
// Only a refusal for good is an error: everything else Run tries again.
func (m *Mesh) Join(ctx context.Context) error { return m.attach.Join(ctx) }
