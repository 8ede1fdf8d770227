// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestTheBoundsFitTogether holds the relations between bounds on which their reasons rest.
func TestTheBoundsFitTogether(t *testing.T) {
	for name, ok := range map[string]bool{
		"a live session is pinged twice before it counts as dead":               2*limit.PingLive < limit.DeadLive,
		"an idle session is pinged twice before it counts as dead":              2*limit.PingIdle < limit.DeadIdle,
		"a live session dies within the promised 3 s":                           limit.DeadLive <= 3*time.Second,
		"an idle session dies within the promised 30 s":                         limit.DeadIdle <= 30*time.Second,
		"a dial on a silent session fails over before the session dies":         limit.Silent+limit.PingWait < limit.DeadLive,
		"a control stream that broke in a loop is back before the session dies": limit.ControlAgain+limit.PingLive < limit.DeadLive,
		"an agent's unread bytes leave room for those of its streams at work":   limit.AgentUnread < limit.ClusterUnread,
		"silence is longer than the time between pings":                         limit.Silent > limit.PingLive,
		"a fault with all its texts fits in a dial frame":                       3*limit.FaultText+limit.AuthorityLength+128 < limit.DialFrame,
		"the agent's connect fits in a dial":                                    limit.DialTarget < limit.Dial,
		"staggered attempts on all addresses fit in a connect":                  limit.ResolvedAddresses*limit.HappyEyeballs < limit.DialTarget,
		"the backoff begins below its cap":                                      limit.BackoffFirst < limit.BackoffMost,
		"a drain ends before a kubelet kills, with time to shut down":           limit.Drain+limit.Shutdown <= 30*time.Second,
		"an authority has one dotted name, its brackets, colon and port":        limit.AuthorityLength >= 253+2+1+5,
		"an agent's certificate is set back by less than a third of its life":   limit.ClockTolerance < limit.AgentCertificate/3,
		"no certificate outlives its CA":                                        limit.ClientCertificate < limit.Authority && limit.HubCertificate < limit.Authority,
		"a warning comes well before the end of a client certificate":           limit.ExpiryWarning < limit.ClientCertificate/2,
		"a token may live as long as it does by default":                        limit.TokenTTL <= limit.TokenTTLMost,
		"a half-closed stream is given up before an idle one":                   limit.HalfClosedIdle < limit.StreamIdle,
		"a copy waits with less than it copies with":                            2*limit.WaitBuffer < limit.CopyBuffer,
		"a socket path with its NUL has the size of sun_path":                   limit.SocketPath == 108,
	} {
		if !ok {
			t.Errorf("it does not hold that %s", name)
		}
	}
}
