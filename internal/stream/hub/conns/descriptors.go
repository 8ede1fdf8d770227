// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"os"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// Means is what the number of connections of a session depends on.
type Means struct {
	Configured int // by the hub's configuration
	Cores      int // of which each serves two connections: more wait for one another
	Used, Most int // descriptors of this process
}

// PerSession says how many connections a session may have. With half of the
// descriptors in use there is one for each: the rest is for callers and for
// agents that are still to come.
func PerSession(m Means) int {
	if m.Used > m.Most/2 {
		return 1
	}
	return max(1, min(limit.Connections, m.Configured, 2*m.Cores))
}

// Descriptors counts the open files of this process, now and then: the list of
// a busy hub is long. Between two counts each connection that is asked for counts.
type Descriptors struct {
	most int
	list func() (int, error)

	mu      sync.Mutex
	counted int
	at      time.Time
}

func NewDescriptors() *Descriptors { return NewDescriptorsOf(socket.Descriptors(), listDescriptors) }

// NewDescriptorsOf counts at most so many by list.
func NewDescriptorsOf(most int, list func() (int, error)) *Descriptors {
	return &Descriptors{most: most, list: list}
}

// Most is how many there may be.
func (d *Descriptors) Most() int { return d.most }

func listDescriptors() (int, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return len(names), err
}

// Used is how many there are of how many, with one more for each time that it
// was asked since the last count. What cannot be counted counts as all.
func (d *Descriptors) Used(now time.Time) (n, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Sub(d.at) >= descriptorsCounted {
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
