// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// vectors are the frames of testdata/vectors.txt as values, by name.
func vectors() map[string]proto.Message {
	control := func(f *pb.Control) proto.Message { return f }
	refusal := fault.New(fault.CodeDialRefused, "10.96.0.10:53 refused the connection").
		Whyf("nothing listens at 10.96.0.10:53").Hint("check that the target runs and listens there")
	return map[string]proto.Message{
		"hello": control(&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{
			VersionMin: 1, VersionMax: 1, Capabilities: []string{"a", "b"}, Software: "tombolo/1.0.0", Instance: "k5vq",
			Ranges: []string{"10.96.0.0/12", "*.svc.cluster.local:443"}, UnixMillis: 1772366400000,
		}}}),
		"hello that offers the mux": control(&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{
			VersionMin: 1, VersionMax: 1, Capabilities: []string{wire.CapabilityMux}, Instance: "k5vq",
		}}}),
		"welcome to the mux": control(&pb.Control{Frame: &pb.Control_Welcome{Welcome: &pb.Welcome{
			Version: 1, Capabilities: []string{wire.CapabilityMux}, Secret: []byte("0123456789abcdef"), Connections: 4,
		}}}),
		"hello of a further connection": control(&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{
			VersionMin: 1, VersionMax: 1, Capabilities: []string{wire.CapabilityMux}, Instance: "k5vq", Attach: []byte("0123456789abcdef"),
		}}}),
		"welcome": control(&pb.Control{Frame: &pb.Control_Welcome{Welcome: &pb.Welcome{
			Version: 1, Software: "tombolo/1.0.0", Hub: "hub-1", UnixMillis: 1772366400001,
		}}}),
		"welcome that refuses": control(&pb.Control{Frame: &pb.Control_Welcome{Welcome: &pb.Welcome{
			Refusal: &pb.Fault{Code: "version_unsupported", What: "no common version"},
		}}}),
		"ping":    control(&pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 300}}}),
		"pong":    control(&pb.Control{Frame: &pb.Control_Pong{Pong: &pb.Pong{Number: 300}}}),
		"drain":   control(&pb.Control{Frame: &pb.Control_Drain{Drain: &pb.Drain{Reason: "SIGTERM"}}}),
		"load":    control(&pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: 7}}}),
		"goodbye": control(&pb.Control{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{}}}),
		"dial request": wire.Dial{
			Network: "tcp", Address: "kubernetes.default.svc:443", Timeout: 30 * time.Second,
			Caller: "unix:c1/konnectivity", EgressType: "cluster", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}.Message(),
		"dial request with metadata": wire.Dial{
			Network: "tcp", Address: "db.svc:5432", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			TraceState: "a=1", Metadata: []reqmeta.Pair{{Key: "ticket", Value: "OPS-1"}},
		}.Message(),
		"dial reply":               wire.Reply("10.96.0.1:443", nil),
		"dial reply with a fault":  wire.Reply("", refusal),
		"dial reply that is empty": &pb.DialReply{},
		"dial request that asks":   wire.Dial{Network: "tcp", Address: "db.svc:5432", Ask: true}.Message(),
		"dial reply with addresses": wire.Addresses([]netip.AddrPort{
			netip.MustParseAddrPort("10.96.0.1:5432"), netip.MustParseAddrPort("[fd00::1]:5432")}),
		"dial choice": wire.Choice([]netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:5432")}),
	}
}

// TestVectors holds the bytes of the protocol still: another implementation may
// be tested with the same file. Each is "name: hex of the whole frame".
func TestVectors(t *testing.T) {
	file, err := os.Open("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	values := vectors()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, _ := strings.Cut(line, ": ")
		want, err := hex.DecodeString(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, ok := values[name]
		if !ok {
			t.Errorf("%s: there is no value of that name", name)
			continue
		}
		delete(values, name)
		if got, err := wire.Append(nil, m); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is written as\n%x, %v, want\n%x", name, got, err, want)
		}
		back := m.ProtoReflect().New().Interface()
		if err := wire.Read(bytes.NewReader(want), limit.ControlFrame, back); err != nil || !proto.Equal(back, m) {
			t.Errorf("%s is read as %s, %v", name, prototext.Format(back), err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name, m := range values {
		got, err := wire.Append(nil, m)
		t.Errorf("the file lacks\n%s: %x (%v)", name, got, err)
	}
}
