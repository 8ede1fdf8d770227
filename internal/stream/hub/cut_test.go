// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// deaf is a connection whose reader may stop.
type deaf struct {
	net.Conn
	stop, silent, closed chan struct{} // silent: it has stopped
	once, end            sync.Once
}

func newDeaf(conn net.Conn) *deaf {
	return &deaf{Conn: conn, stop: make(chan struct{}), silent: make(chan struct{}), closed: make(chan struct{})}
}

func (d *deaf) Read(b []byte) (int, error) {
	select {
	case <-d.stop:
		d.once.Do(func() { close(d.silent) })
		<-d.closed
		return 0, net.ErrClosed
	default:
		return d.Conn.Read(b)
	}
}

func (d *deaf) Close() error {
	d.end.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// deafEaters is a cluster with a session whose agent reads nothing any more.
func deafEaters(t *testing.T, h *Hub, name string, streams int) *eaters {
	t.Helper()
	c := h.clusters.add(clusterOf(t, name))
	near, far := net.Pipe() // which holds nothing
	ear := newDeaf(far)
	link, err := carrier.Server(near, carrier.Options{Incoming: 2, Budget: c.accounts.Budget})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := carrier.Client(ear, carrier.Options{Incoming: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(); agent.Close() })
	e := &eaters{cluster: c, hub: h, agent: agent, session: &session{cluster: c, link: link, beat: heartbeat.New(heartbeat.Options{})}}
	e.open(t, streams, 0)
	close(ear.stop)
	written := make(chan struct{})
	go func() { // more than the read that is under way takes
		defer close(written)
		e.streams[0].Write(make([]byte, 200<<10))
	}()
	t.Cleanup(func() { link.Close(); <-written })
	<-ear.silent
	return e
}

// An agent that reads nothing delays nobody: a change of the policy that refuses its
// streams and then one of another cluster ends them all while its session is still
// blocked. So it is with those that are cut for want of memory.
func TestAnAgentThatDoesNotReadDelaysNoCut(t *testing.T) {
	for name, end := range map[string]func(refused []authz.Overruled){
		"by a changed policy": func(refused []authz.Overruled) {
			for _, r := range refused {
				r.Overrule(r.Ruling)
			}
		},
		"for want of memory": func(refused []authz.Overruled) {
			for _, r := range refused {
				r.Stream.(*hubStream).Cut(fault.New(fault.CodePolicyDenied, "short"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			h := bareHub(t)
			stuck, other := deafEaters(t, h, "c1", 200), eat(t, h, "c2")
			other.open(t, 1, 1)
			reader := make(chan error, 1)
			go func() {
				_, err := stuck.streams[1].Read(make([]byte, 1))
				reader <- err
			}()
			refused := h.access.Replace(true, map[string]*policy.Policy{})
			if len(refused) != 201 {
				t.Fatalf("%d streams are refused", len(refused))
			}
			slices.SortStableFunc(refused, func(a, b authz.Overruled) int {
				return strings.Compare(a.Request().Cluster, b.Request().Cluster)
			})
			end(refused)
			select {
			case <-stuck.session.link.Done():
				t.Fatal("who ends the streams waited for the agent that does not read")
			default:
			}
			var reset *carrier.ResetError
			if _, err := io.ReadAll(other.far[0]); !errors.As(err, &reset) || reset.Code != splice.ResetCode(fault.CodePolicyDenied) {
				t.Errorf("the other cluster's agent reads %v", err)
			}
			if err := <-reader; err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the caller of the stuck agent reads %v", err)
			}
			for _, s := range stuck.streams {
				if n, err := s.Stream.Write([]byte{1}); n != 0 || !errors.Is(err, net.ErrClosed) {
					t.Fatalf("a stream that was ended takes %d bytes, %v", n, err)
				}
				if n, err := s.Stream.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
					t.Fatalf("a stream that was ended gives %d bytes, %v", n, err)
				}
			}
			select {
			case <-stuck.session.link.Done():
				t.Error("the session ended meanwhile: nothing was blocked")
			default:
			}
		})
	}
}
