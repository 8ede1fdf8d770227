// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// streamErrors are those that a server has counted in a segment, by their code.
func streamErrors(port int, segment string) map[string]string {
	_, body := get(port, "/metrics")
	const format = `konnectivity_network_proxy_server_stream_errors_total{code=%q,packet_type="Unknown",segment="`
	out := map[string]string{}
	for l := range strings.Lines(body) {
		var code, n string
		if _, err := fmt.Sscanf(l, format+segment+`"} %s`, &code, &n); err == nil && n != "0" {
			out[code] = n
		}
	}
	return out
}

// stream is one of a caller, without a dial: the only one of a server that has had some.
func (p *proxy) stream() (s grpc.ClientStream, cc *grpc.ClientConn, cancel func()) {
	p.w.Helper()
	cc, err := grpc.NewClient("unix:"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	p.w.must(err)
	p.w.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	p.w.Cleanup(cancel)
	open := func(n string) func() bool {
		return func() bool {
			return metric(p.healthPort, `konnectivity_network_proxy_server_grpc_connections{service_method="Proxy"}`) == n
		}
	}
	eventually(p.w, "the earlier streams are over", open("0")) // which may be after their errors are counted
	s, err = cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/ProxyService/Proxy")
	p.w.must(err)
	eventually(p.w, "the stream has arrived", open("1"))
	return s, cc, cancel
}

// TestStreamErrorsOfCallers counts the ends of callers' streams in from_client as the reference does, with the same
// codes: of every stream but one whose caller has ended its own direction.
func TestStreamErrorsOfCallers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*world) *proxy{
		"their server": func(w *world) *proxy { return w.theirs("grpc", false) },
		"our server":   func(w *world) *proxy { return w.ours("grpc", false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := start(w)
			theirAgent(w, p.agentPort)
			p.ready()
			want := map[string]string{}
			wait := func(what string) {
				t.Helper()
				var got map[string]string
				defer func() {
					if t.Failed() {
						t.Logf("%s: %v, want %v", what, got, want)
					}
				}()
				eventually(t, what, func() bool {
					got = streamErrors(p.healthPort, "from_client")
					return maps.Equal(got, want)
				})
			}
			wait("nothing is counted")

			conn := p.mustDial(runtest.Echo(t).Addr())
			echoes(t, conn, 100)
			conn.Close()
			want["Canceled"] = "1"
			wait("a connection that its caller closes")

			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			if _, err := p.dial(ctx, "127.0.0.1:1"); err == nil {
				t.Error("a port where nobody listens is reached")
			}
			want["Canceled"] = "2"
			wait("a dial that fails")

			_, _, leave := p.stream()
			leave()
			want["Canceled"] = "3"
			wait("a stream that is given up")

			_, cc, _ := p.stream()
			cc.Close()
			want["Canceled"] = "4"
			wait("a connection with a stream that is lost")

			s, cc, _ := p.stream()
			s.SendMsg(&[]byte{0xff})
			want["Internal"] = "1"
			wait("a packet that is none")
			cc.Close()

			s, cc, _ = p.stream()
			large := make([]byte, 5<<20)
			s.SendMsg(&large)
			want["ResourceExhausted"] = "1"
			wait("a packet that is too large")
			cc.Close()

			s, cc, _ = p.stream()
			s.CloseSend()
			eventually(t, "a stream whose caller has ended it is over", func() bool {
				return metric(p.healthPort, `konnectivity_network_proxy_server_grpc_connections{service_method="Proxy"}`) == "0"
			})
			cc.Close()
			wait("a stream whose caller has ended it")
		})
	}
}
