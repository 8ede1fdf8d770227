// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is what a scripted proxy has of a dial.
type stream = pb.ProxyService_ProxyServer

// scripted is a konnectivity server by the reference's generated code, which does as it is told with each stream.
type scripted struct {
	pb.UnimplementedProxyServiceServer
	serve func(stream) error
}

func (s scripted) Proxy(st pb.ProxyService_ProxyServer) error { return s.serve(st) }

// proxy serves on ln until the test ends.
func proxy(t *testing.T, ln net.Listener, serve func(stream) error, options ...grpc.ServerOption) {
	t.Helper()
	srv := grpc.NewServer(options...)
	pb.RegisterProxyServiceServer(srv, scripted{serve: serve})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// load makes a selector of a connection's YAML.
func load(t *testing.T, version, connection string) *egress.Selector {
	t.Helper()
	file := filepath.Join(t.TempDir(), "egress.yaml")
	text := "apiVersion: apiserver.k8s.io/" + version + "\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  connection: " + connection + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := egress.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cluster(t *testing.T, s *egress.Selector) *egress.Dialer {
	t.Helper()
	d, err := s.Dialer(egress.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// over is a dialer of GRPC to a scripted proxy on a unix socket.
func over(t *testing.T, serve func(stream) error) *egress.Dialer {
	t.Helper()
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	proxy(t, ln, serve)
	return cluster(t, load(t, "v1beta1", fmt.Sprintf("{proxyProtocol: GRPC, transport: {uds: {udsName: %q}}}", path)))
}

func answer(random, id int64, text string) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_DIAL_RSP, Payload: &pb.Packet_DialResponse{DialResponse: &pb.DialResponse{Random: random, ConnectID: id, Error: text}}}
}

func data(id int64, b []byte) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_DATA, Payload: &pb.Packet_Data{Data: &pb.Data{ConnectID: id, Data: b}}}
}

func closed(id int64, text string) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_CLOSE_RSP, Payload: &pb.Packet_CloseResponse{CloseResponse: &pb.CloseResponse{ConnectID: id, Error: text}}}
}

// accept answers a dial with an id.
func accept(st stream, id int64) (*pb.DialRequest, error) {
	p, err := st.Recv()
	if err != nil {
		return nil, err
	}
	return p.GetDialRequest(), st.Send(answer(p.GetDialRequest().GetRandom(), id, ""))
}

// echo serves streams as a proxy with a target that sends back what it gets.
func echo(st stream) error {
	if _, err := accept(st, 7); err != nil {
		return err
	}
	for {
		p, err := st.Recv()
		if err != nil {
			return nil
		}
		switch p.GetType() {
		case pb.PacketType_DATA:
			err = st.Send(p)
		case pb.PacketType_CLOSE_REQ:
			return st.Send(closed(7, ""))
		}
		if err != nil {
			return err
		}
	}
}

func mustEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v", got, err)
	}
	conn.SetDeadline(time.Time{})
}

// TestADialThatIsGivenUp returns while the proxy is silent, and the proxy is told.
func TestADialThatIsGivenUp(t *testing.T) {
	asked, told := make(chan struct{}), make(chan []*pb.Packet, 1)
	d := over(t, func(st stream) error {
		var all []*pb.Packet
		for {
			p, err := st.Recv()
			if err != nil {
				told <- all
				return nil
			}
			if all = append(all, p); len(all) == 1 {
				close(asked)
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err := d.DialContext(ctx, "tcp", "a:1")
	var e *client.Error
	if !errors.As(err, &e) || e.Code != "dial_canceled" || !e.Asked || !errors.Is(err, context.Canceled) {
		t.Errorf("%#v", err)
	}
	got := <-told
	if len(got) != 2 || got[1].GetType() != pb.PacketType_DIAL_CLS ||
		got[1].GetCloseDial().GetRandom() != got[0].GetDialRequest().GetRandom() {
		t.Errorf("the proxy was told %v", got)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	asked = make(chan struct{})
	if _, err := d.DialContext(ctx, "tcp", "a:1"); !errors.As(err, &e) || e.Code != "dial_timeout" || !e.Timeout() {
		t.Errorf("%#v", err)
	}
}

// TestWhatTheProxySays of a dial and of a connection; what is for another one is ignored.
func TestWhatTheProxySays(t *testing.T) {
	d := over(t, func(st stream) error {
		p, err := st.Recv()
		if err != nil {
			return err
		}
		q := p.GetDialRequest()
		if md, _ := metadata.FromIncomingContext(st.Context()); len(md.Get("user-agent")) == 0 {
			return errors.New("it does not say what it is")
		}
		random, fine := q.GetRandom(), func(rest ...*pb.Packet) error {
			var errs []error
			for _, p := range append([]*pb.Packet{data(3, []byte("too early")), answer(q.GetRandom()+1, 9, "another's"), answer(q.GetRandom(), 3, "")}, rest...) {
				errs = append(errs, st.Send(p))
			}
			return errors.Join(errs...)
		}
		switch q.GetAddress() {
		case "refused:1":
			st.Send(answer(random, 0, "connect: refused"))
			_, err := st.Recv() // as the reference, which waits for the end of the stream
			return ignoring(err)
		case "coded:1":
			st.SetTrailer(metadata.Pairs("tombolo-fault", "policy_denied"))
			return st.Send(answer(random, 0, "policy_denied: no\xe2\x80\xae"))
		case "status:1":
			return status.Error(codes.ResourceExhausted, "100% full: ä")
		case "nothing:1":
			return nil
		case "dropped:1":
			return st.Send(&pb.Packet{Type: pb.PacketType_DIAL_CLS, Payload: &pb.Packet_CloseDial{CloseDial: &pb.CloseDial{Random: random}}})
		case "end:1":
			return fine(data(4, []byte("another's")), &pb.Packet{Type: 99}, &pb.Packet{Type: pb.PacketType_DRAIN}, data(3, []byte("hel")), data(3, []byte("lo")), closed(4, "another's"), closed(3, ""))
		case "reset:1":
			return fine(data(3, []byte("hello")), closed(3, "reset by peer"))
		}
		return errors.Join(fine(data(3, []byte("hello"))), status.Error(codes.Unavailable, "going away"))
	})
	for address, code := range map[string]string{
		"refused:1": "dial_unreachable", "coded:1": "policy_denied", "status:1": "hub_unreachable", "nothing:1": "hub_unreachable", "dropped:1": "dial_unreachable",
	} {
		_, err := d.DialContext(runtest.Within(t), "tcp", address)
		var e *client.Error
		if !errors.As(err, &e) || e.Code != code || !e.Asked || e.Reason == "" {
			t.Errorf("%s: %#v", address, err)
		}
		if address == "status:1" && !bytes.Contains([]byte(e.Reason), []byte("100% full: ä")) {
			t.Errorf("the status is told as %q", e.Reason)
		}
		if address == "coded:1" && bytes.ContainsRune([]byte(e.Reason), '\u202e') {
			t.Errorf("the text is passed on as it came: %q", e.Reason)
		}
	}
	for address, orderly := range map[string]bool{"end:1": true, "reset:1": false, "cut:1": false} {
		conn, err := d.DialContext(runtest.Within(t), "tcp", address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		got, err := io.ReadAll(conn)
		if string(got) != "hello" || (err == nil) != orderly || !orderly && !errors.Is(err, client.ErrCut) {
			t.Errorf("%s: %q, %v", address, got, err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: a write after the end: %v", address, err)
		}
		if conn.RemoteAddr().String() != address {
			t.Errorf("%v", conn.RemoteAddr())
		}
		conn.Close()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a read after Close: %v", address, err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a write after Close: %v", address, err)
		}
	}
}

func ignoring(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// TestCloseIsTold, behind all that was written.
func TestCloseIsTold(t *testing.T) {
	got := make(chan string, 1)
	d := over(t, func(st stream) error {
		if _, err := accept(st, 5); err != nil {
			return err
		}
		var text []byte
		for {
			p, err := st.Recv()
			switch {
			case err != nil:
				got <- string(text) + " and no CLOSE_REQ"
				return nil
			case p.GetType() == pb.PacketType_CLOSE_REQ:
				got <- fmt.Sprintf("%s, %d closed", text, p.GetCloseRequest().GetConnectID())
				return st.Send(closed(5, ""))
			}
			text = append(text, p.GetData().GetData()...)
		}
	})
	conn, err := d.DialContext(runtest.Within(t), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "", "bc"} {
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	if text := <-got; text != "abc, 5 closed" {
		t.Error(text)
	}
}

// TestAReaderThatStandsStill does not stall another connection, nor its own writes, deadlines and Close.
func TestAReaderThatStandsStill(t *testing.T) {
	full := make(chan struct{})
	d := over(t, func(st stream) error {
		if md, _ := metadata.FromIncomingContext(st.Context()); len(md.Get("x-flood")) == 0 {
			return echo(st)
		}
		if _, err := accept(st, 7); err != nil {
			return err
		}
		sent, chunk := 0, make([]byte, 32<<10)
		go func() {
			for {
				if _, err := st.Recv(); err != nil {
					return
				}
			}
		}()
		for st.Send(data(7, chunk)) == nil {
			if sent += len(chunk); sent == 4<<20 {
				close(full) // more than what may be under way
			}
		}
		return nil
	})
	still, err := d.DialContext(client.WithHeader(runtest.Within(t), "x-flood", "yes"), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer still.Close()
	conn, err := d.DialContext(runtest.Within(t), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEcho(t, conn, "while the other stands still")
	still.SetWriteDeadline(time.Now().Add(runtest.Patience))
	if _, err := still.Write(make([]byte, 128<<10)); err != nil {
		t.Errorf("a write of one that does not read: %v", err)
	}
	select {
	case <-full:
		t.Error("4 MiB were taken of a connection that nobody reads")
	default:
	}
	still.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := still.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline that has passed: %v", err)
	}
	still.SetReadDeadline(time.Time{})
	if _, err := io.CopyN(io.Discard, still, 8<<20); err != nil {
		t.Errorf("reading again: %v", err)
	}
}
