// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func TestConnectionsThatAreAllowed(t *testing.T) {
	for _, c := range []struct {
		configured int
		welcome    uint32
		want       int
	}{
		{4, 0, 1}, {4, 1, 1}, {4, 2, 2}, {1, 4, 1}, {4, 4, 4}, {4, 5, limit.Connections}, {4, math.MaxUint32, limit.Connections},
	} {
		if got := allowed(c.configured, c.welcome); got != c.want {
			t.Errorf("configured %d, the hub says %d: %d, want %d", c.configured, c.welcome, got, c.want)
		}
	}
}

// scriptedHub answers each Hello with the next Welcome and closes.
type scriptedHub struct {
	addr   string
	hellos chan *pb.Hello
}

func newScriptedHub(t *testing.T, ca *trust.Authority, welcomes ...*pb.Welcome) *scriptedHub {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "h1"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{trust.ALPNSession}, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &scriptedHub{addr: ln.Addr().String(), hellos: make(chan *pb.Hello, len(welcomes))}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for _, w := range welcomes {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			var m pb.Control
			if wire.Read(conn, limit.ControlFrame, &m) == nil {
				h.hellos <- m.GetHello()
				w.UnixMillis = time.Now().UnixMilli()
				wire.Write(conn, &pb.Control{Frame: &pb.Control_Welcome{Welcome: w}})
			}
			conn.Read(make([]byte, 1)) // until the agent closes
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-served })
	return h
}

// bareAgent is an agent of cluster c1 that does not run.
func bareAgent(t *testing.T) (*Agent, *trust.Authority) {
	t.Helper()
	log, err := telemetry.Logger(io.Discard, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	a := New(DefaultConfig(), Options{Log: log, Reg: prometheus.NewRegistry()})
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.setIdentity(certified(t, ca))
	return a, ca
}

func certified(t *testing.T, ca *trust.Authority) *enrol.Identity {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{
		Identity: id.Identity{Role: id.RoleAgent, Cluster: cluster, Name: "a1"}, Key: key.Public(), Life: time.Hour,
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	i := &enrol.Identity{Key: key}
	if err := i.SetCertificates(string(trust.EncodeCertificate(leaf.Raw)), string(ca.CertificatePEM())); err != nil {
		t.Fatal(err)
	}
	return i
}

// TestAFurtherConnection: its Hello carries the secret and nothing of the agent's
// rules, and only a hub that confirms the mux is taken.
func TestAFurtherConnection(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for name, c := range map[string]struct {
		welcome *pb.Welcome
		want    fault.Code // empty: it is taken
	}{
		"confirmed":                        {&pb.Welcome{Version: wire.Version, Capabilities: []string{wire.CapabilityMux}}, ""},
		"taken for a new session":          {&pb.Welcome{Version: wire.Version}, fault.CodeVersion},
		"refused":                          {&pb.Welcome{Refusal: &pb.Fault{Code: string(fault.CodeLimit), What: "x"}}, fault.CodeLimit},
		"a version that was not asked for": {&pb.Welcome{Version: 9, Capabilities: []string{wire.CapabilityMux}}, fault.CodeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			a, ca := bareAgent(t)
			hub := newScriptedHub(t, ca, c.welcome)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			conn, err := a.attach(ctx, &session{}, hub.addr, "", secret)
			if conn != nil {
				defer conn.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (!fault.Has(err, c.want) || conn != nil) {
				t.Errorf("%v, %v; want %q", conn, err, c.want)
			}
			if h := <-hub.hellos; !bytes.Equal(h.GetAttach(), secret) || len(h.GetRanges()) > 0 || len(h.GetCapabilities()) != 1 {
				t.Errorf("said %v", h)
			}
		})
	}
}

// TestTicketsBelongToACertificate: a renewed certificate resumes no handshake of the old one.
func TestTicketsBelongToACertificate(t *testing.T) {
	a, ca := bareAgent(t)
	var welcomes []*pb.Welcome
	for range 4 {
		welcomes = append(welcomes, &pb.Welcome{Version: wire.Version, Capabilities: []string{wire.CapabilityMux}})
	}
	hub := newScriptedHub(t, ca, welcomes...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, resumed := range []bool{false, true, false, true} {
		if i == 2 {
			a.setIdentity(certified(t, ca))
		}
		conn, err := a.attach(ctx, &session{}, hub.addr, "", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.(*tls.Conn).ConnectionState().DidResume; got != resumed {
			t.Errorf("connection %d: resumed=%v", i, got)
		}
		conn.Close()
	}
}

// TestDrainRefusesWhatIsUnderWay: a drain tells the hub at once, and refuses unseen
// what comes all the same.
func TestDrainRefusesWhatIsUnderWay(t *testing.T) {
	near, far := net.Pipe()
	link, err := carrier.Client(near, carrier.Options{Incoming: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	hub, err := carrier.Server(far, carrier.Options{Incoming: limit.AgentStreams})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	control, err := link.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{link: link, beat: heartbeat.New(heartbeat.Options{Stream: control})}
	s.drain("test")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		stream, err := hub.OpenStream(ctx, []byte("a dial"))
		if fault.Has(err, fault.CodeDraining) {
			break // it knows
		}
		if err != nil {
			t.Fatal(err)
		}
		var reset *carrier.ResetError
		stream.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.Code != carrier.ResetRefused {
			t.Fatalf("a stream under way: %v", err)
		}
	}
}

// TestWhyASessionEnded: what was said comes before what broke.
func TestWhyASessionEnded(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	said := fault.New(fault.CodeCertRevoked, "revoked")
	for name, c := range map[string]struct {
		ctx      context.Context
		farewell *fault.Fault
		err      error
		want     fault.Code
	}{
		"the hub said why":           {t.Context(), said, io.EOF, fault.CodeCertRevoked},
		"the hub said why in a stop": {stopped, said, context.Canceled, fault.CodeCertRevoked},
		"a stop":                     {stopped, nil, context.Canceled, fault.CodeDraining},
		"a frame that cannot be":     {t.Context(), nil, fault.New(fault.CodeFrameInvalid, "x"), fault.CodeFrameInvalid},
		"it broke":                   {t.Context(), nil, io.EOF, fault.CodeSessionLost},
	} {
		s := &session{}
		s.farewell.Store(c.farewell)
		if f := s.ended(c.ctx, c.err); f == nil || f.Code != c.want {
			t.Errorf("%s: %v, want %s", name, f, c.want)
		}
	}
}
