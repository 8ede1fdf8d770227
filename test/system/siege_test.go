// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// How often an attack does what it does. These are enough to pass each bound that
// the attack is about; times raises them for a run that is to last.
const (
	manyFrames     = 100_000 // frames that one peer sends without reading, streams of its own among them
	manyResets     = 3_000   // streams that are opened and reset
	manyHandshakes = 150     // handshakes of one kind
	manySlow       = 150     // connections that are kept waiting
	bombBytes      = 8 << 20 // of a header that does not end
)

// manyTimes is the variable that raises how often an attack does what it does.
const manyTimes = "TOMBOLO_CHAOS_TIMES"

// times is n, or more of it in a long run (make chaos).
func times(n int) int {
	if by, err := strconv.Atoi(os.Getenv(manyTimes)); err == nil && by > 1 {
		return n * by
	}
	return n
}

// siege is a hub under attack, with what an attack must not touch: a live
// connection and dials of another cluster.
type siege struct {
	*testHub
	live       net.Conn
	dial       func() (net.Conn, error)
	heap       uint64
	goroutines int
	cpu        time.Duration
	served     int           // dials of the other cluster since the begin
	dialCPU    time.Duration // of an honest dial with its echo, all ends of it
}

// besieged starts a hub whose cluster c2 has an agent and a caller.
func besieged(t *testing.T) *siege {
	t.Helper()
	s := &siege{testHub: startHub(t, hubSpec{})}
	startAgent(t, agentSpec{join: s.token("c2").Join})
	to, path := runtest.Echo(t), s.socket("c2", "connect")
	s.dial = func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), runtest.Patience)
		defer cancel()
		return dialConnect(ctx, path, to.Addr())
	}
	var err error
	if s.live, err = s.dial(); err != nil {
		t.Fatal(err)
	}
	closing(t, s.live)
	mustEcho(t, s.live, "before")
	// The measure of what an attack costs is what honest callers cost, on this
	// machine, in this build.
	const honest = 50
	before := cpuTime()
	for range honest {
		s.others("before")
	}
	s.dialCPU = (cpuTime() - before) / honest
	return s
}

// begin takes what is there as what there may be afterwards.
func (s *siege) begin() {
	s.heap, s.goroutines = heapInUse(), runtime.NumGoroutine()
	s.cpu, s.served = cpuTime(), 0
}

// cpuTime is what this process has used of the processors. Hub, agents, callers and
// attackers are all in it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// costs wants each act of the attack, the attacker's own part included, to have cost
// no more than so many honest dials: to attack costs the attacker, too.
func (s *siege) costs(acts int, dials float64) {
	s.t.Helper()
	most := time.Duration((dials*float64(acts) + 2*float64(s.served)) * float64(s.dialCPU))
	most += time.Second // collections, timers
	if spent := cpuTime() - s.cpu; spent > most {
		s.t.Errorf("%d acts and %d honest dials took %v of the processors, at most %v are expected (an honest dial takes %v)",
			acts, s.served, spent, most, s.dialCPU)
	}
}

// heapInUse is what is reachable, also from pools that the collector keeps for one round.
func heapInUse() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// during runs the attack while the other cluster dials and echoes, at least once.
func (s *siege) during(attack func() error) {
	s.t.Helper()
	over := make(chan error, 1)
	go func() { over <- attack() }()
	var ended bool
	for !ended {
		select {
		case err := <-over:
			if err != nil {
				s.t.Errorf("the attack could not be carried out: %v", err)
			}
			ended = true
		default:
		}
		s.others("during the attack")
	}
}

// others proves that the other cluster is served.
func (s *siege) others(when string) {
	s.t.Helper()
	s.live.SetDeadline(time.Now().Add(runtest.Patience)) // an attack takes a busy machine long
	mustEcho(s.t, s.live, "still alive "+when)
	conn, err := s.dial()
	if err != nil {
		s.t.Fatalf("a dial of another cluster %s: %v", when, err)
	}
	mustEcho(s.t, conn, "new "+when)
	conn.Close()
	s.served++
}

// holds wants the heap, with the attack's own, to have grown by no more than this.
func (s *siege) holds(most uint64) {
	s.t.Helper()
	if now := heapInUse(); now > s.heap+most+s.remembered() {
		s.t.Errorf("the heap has grown by %s, at most %s are expected", megabytes(now-s.heap), megabytes(most))
	}
}

// remembered is what this test keeps of the honest dials: their lines in the logs.
// A fast machine makes thousands of them during an attack.
func (s *siege) remembered() uint64 { return 2 << 10 * uint64(s.served) }

// lifted wants everything to be as it was: nothing that the attack has begun goes on.
func (s *siege) lifted() {
	s.t.Helper()
	s.others("after the attack")
	runtest.Eventually(s.t, fmt.Sprintf("goroutines are back at %d", s.goroutines), func() bool { return runtime.NumGoroutine() <= s.goroutines+2 })
	const left = 4 << 20 // pools, and tables that do not shrink
	runtest.Eventually(s.t, "the heap is back", func() bool { return heapInUse() <= s.heap+left+s.remembered() })
}

func megabytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
