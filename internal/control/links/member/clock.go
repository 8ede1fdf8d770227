// SPDX-License-Identifier: Apache-2.0

package member

import (
	"net/http"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// steady is by how much a clock has to change so that something else is said of it.
const steady = 5 * time.Second

// clock is that of this controller, compared with the times in the answers of the host cluster's API server.
type clock struct {
	now     func() time.Time
	changed func() // what is to be said; must not block

	mu    sync.Mutex
	skew  time.Duration // as it is said
	known bool
}

// wrap has answers be looked at.
func (c *clock) wrap(next http.RoundTripper) http.RoundTripper { return timed{c, next} }

// said is by how much the clock is ahead, if it is known.
func (c *clock) said() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew, c.known
}

// note takes a measured difference.
func (c *clock) note(skew time.Duration) {
	c.mu.Lock()
	differs := !c.known || (skew-c.skew).Abs() >= steady
	if differs {
		c.skew, c.known = skew, true
	}
	c.mu.Unlock()
	if differs {
		c.changed()
	}
}

// timed is a transport whose answers a clock looks at.
type timed struct {
	clock *clock
	next  http.RoundTripper
}

// RoundTrip does a request.
func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := t.clock.now()
	answer, err := t.next.RoundTrip(r)
	if err != nil || answer.StatusCode >= http.StatusInternalServerError { // a proxy may have answered
		return answer, err
	}
	if stamp, bad := http.ParseTime(answer.Header.Get("Date")); bad == nil {
		if skew, ok := trouble.Skew(asked, t.clock.now(), stamp); ok {
			t.clock.note(skew)
		}
	}
	return answer, nil
}

// WrappedRoundTripper is the transport inside, for the libraries of Kubernetes.
func (t timed) WrappedRoundTripper() http.RoundTripper { return t.next }
