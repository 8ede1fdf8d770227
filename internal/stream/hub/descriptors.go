// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"os"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// means is what the number of connections of a session depends on.
type means struct {
	configured int // by the hub's configuration
	cores      int // of which each serves two connections: more wait for one another
	used, most int // descriptors of this process
}

// connections says how many connections a session may have. With half of the
// descriptors in use there is one for each: the rest is for callers and for
// agents that are still to come.
func connections(m means) int {
	if m.used > m.most/2 {
		return 1
	}
	return max(1, min(limit.Connections, m.configured, 2*m.cores))
}

// descriptors counts the open files of this process, now and then: the list of
// a busy hub is long. Between two counts each connection that is asked for counts.
type descriptors struct {
	most int
	list func() (int, error)

	mu      sync.Mutex
	counted int
	at      time.Time
}

func newDescriptors() *descriptors {
	return &descriptors{most: listener.Descriptors(), list: listDescriptors}
}

func listDescriptors() (int, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return len(names), err
}

// used is how many there are of how many, with one more for each time that it
// was asked since the last count. What cannot be counted counts as all.
func (d *descriptors) used(now time.Time) (n, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Sub(d.at) >= limit.DescriptorsCounted {
		n, err := d.list()
		if err != nil {
			n = d.most
		}
		d.counted, d.at = n, now
	} else if d.counted < d.most {
		d.counted++
	}
	return d.counted, d.most
}
