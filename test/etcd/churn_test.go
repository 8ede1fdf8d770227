// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
)

// replicaOf is the variable with which this binary is a replica: where etcd is.
const replicaOf = "TOMBOLO_TEST_REPLICA_OF"

func TestMain(m *testing.M) {
	if urls := os.Getenv(replicaOf); urls != "" {
		if err := serve(urls, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// request is one update that a replica is told to do; answer is what became of it,
// or, with an ID, what its watcher was told.
type request struct{ ID, Data string }

type answer struct {
	ID, Data string
	Err      string
}

// serve is a replica as a program of its own: updates come on one side, and
// answers and what a watcher is told go out of the other.
func serve(urls string, in io.Reader, out io.Writer) error {
	board := discovery.NewBoard(discovery.Bounds{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	st, err := store.Open(ctx, store.Config{Endpoints: strings.Split(urls, ","), Prefix: prefix, Times: quick()}, board)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	say := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(a) // whoever listens may be gone
	}
	w := board.Watch(at("").Cluster)
	go func() { _ = st.Run(ctx) }()
	go func() {
		for {
			changes, err := w.Next(ctx)
			if err != nil {
				return
			}
			for _, l := range changes {
				say(answer{ID: l.ID, Data: string(l.Lease.Data)})
			}
		}
	}()
	say(answer{})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		go func() {
			a := answer{ID: "answer " + r.ID, Data: r.Data}
			if err := st.Update(ctx, at(r.ID), says(r.Data, time.Minute)); err != nil {
				a.Err = err.Error()
			}
			say(a)
		}()
	}
	return lines.Err()
}

// process is a replica that runs as a program of its own.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex
	wait map[string]chan answer
	told map[string]int // the last that its watcher was told
	over chan struct{}
}

func launch(t *testing.T, urls ...string) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.Command(self), wait: map[string]chan answer{}, told: map[string]int{}, over: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), replicaOf+"="+strings.Join(urls, ","))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	begun := make(chan struct{})
	go p.listen(t, out, begun)
	t.Cleanup(p.kill)
	select {
	case <-begun:
	case <-p.over:
		t.Fatal("the replica did not begin")
	}
	return p
}

func (p *process) listen(t *testing.T, out io.Reader, begun chan struct{}) {
	defer close(p.over)
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		var a answer
		if first {
			close(begun)
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return // cut off by its death
		}
		id, answers := strings.CutPrefix(a.ID, "answer ")
		p.mu.Lock()
		if answers {
			p.wait[id] <- a
		} else if n, err := strconv.Atoi(a.Data); err != nil || n <= p.told[id] && n > 0 {
			t.Errorf("the watcher of the other replica was told %q of %s after %d", a.Data, id, p.told[id])
		} else {
			p.told[id] = n
		}
		p.mu.Unlock()
	}
}

// update has the replica do an update; false says that there was no good answer.
func (p *process) update(id, data string) bool {
	ch := make(chan answer, 1)
	p.mu.Lock()
	p.wait[id] = ch
	p.mu.Unlock()
	line, _ := json.Marshal(request{id, data})
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return false
	}
	select {
	case a := <-ch:
		return a.Err == ""
	case <-p.over:
		return false
	}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.over
	_ = p.cmd.Wait()
	_ = p.in.Close()
}

const churners, rounds = 16, 40

// churn has members say numbers in order, each the next once the one before was
// taken, by one service or else by the other. half is called when half is said.
func churn(t *testing.T, half func(), update func(member, round int, data string) bool) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range churners {
		wg.Go(func() {
			for n := range rounds {
				if n == rounds/2 && i == 0 {
					half()
				}
				end := time.Now().Add(time.Minute)
				for !update(i, n, strconv.Itoa(n)) { // as a member does: it says it again
					if time.Now().After(end) {
						t.Errorf("member %d cannot say %d", i, n)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// settled checks that nothing was lost: each member is there with its last word,
// at each service and for the watcher, who was told of each member's words in
// their order and of none as gone.
func settled(t *testing.T, h *history, all ...*replica) {
	t.Helper()
	for i := range churners {
		for _, r := range all {
			runtest.Eventually(t, "the last word", r.shows(at(fmt.Sprint("m", i)), fmt.Sprint(rounds-1, " [] v0 removed=false")))
		}
	}
	runtest.Eventually(t, "the watcher knows what a service knows", func() bool { return h.agrees(all[0].board) })
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[string]int{}
	for _, e := range h.events {
		id, rest, _ := strings.Cut(e, " ")
		word, _, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(word)
		if err != nil || n < last[id] {
			t.Errorf("%s after %d", e, last[id])
		}
		last[id] = n
	}
}

// TestAReplicaIsKilledUnderChurn: its process, by kill -9.
func TestAReplicaIsKilledUnderChurn(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	client := server.Client()
	survivor := startQuick(t, server.URL)
	h := record(t, survivor.board)
	victim := launch(t, server.URL)
	dead := make(chan struct{})
	churn(t, func() { victim.kill(); close(dead) }, func(i, n int, data string) bool {
		id := fmt.Sprint("m", i)
		select {
		case <-dead:
		default:
			if (i+n)%2 == 0 && victim.update(id, data) {
				return true
			}
		}
		return survivor.Update(t.Context(), at(id), says(data, time.Minute)) == nil
	})
	late := startQuick(t, server.URL)
	settled(t, h, late, survivor)
	if n := leases(t, client); n > 2*churners { // one of each write that was cut off waits for its end
		t.Errorf("%d leases are left", n)
	}
	victim.mu.Lock()
	defer victim.mu.Unlock()
	if len(victim.told) == 0 {
		t.Error("the replica that died told its watcher nothing")
	}
}

// TestTheLeaderOfEtcdIsKilledUnderChurn: of three members of etcd.
func TestTheLeaderOfEtcdIsKilledUnderChurn(t *testing.T) {
	t.Parallel()
	servers := StartCluster(t, 3)
	var urls []string
	for _, s := range servers {
		s.Client()
		urls = append(urls, s.URL)
	}
	a, b := startQuick(t, urls...), startQuick(t, urls...)
	h := record(t, a.board)
	var killed string
	churn(t, func() {
		old := leader(t, servers)
		killed = old.URL
		old.Kill()
	}, func(i, n int, data string) bool {
		return []*replica{a, b}[(i+n)%2].Update(t.Context(), at(fmt.Sprint("m", i)), says(data, time.Minute)) == nil
	})
	for _, r := range []*replica{a, b} {
		runtest.Eventually(t, "it is well again", func() bool { return r.State().Degraded == "" })
	}
	if is := leader(t, servers); is.URL == killed {
		t.Error("the leader is the one that was killed")
	}
	settled(t, h, startQuick(t, urls...), a, b)
}

// leader is the member of etcd that leads.
func leader(t *testing.T, servers []*Server) (out *Server) {
	t.Helper()
	runtest.Eventually(t, "etcd has a leader", func() bool {
		for _, s := range servers {
			if s.cmd == nil {
				continue
			}
			if c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, Logger: zap.NewNop()}); err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				status, err := c.Status(ctx, s.URL)
				cancel()
				_ = c.Close()
				if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
					out = s
					return true
				}
			}
		}
		return false
	})
	return out
}
