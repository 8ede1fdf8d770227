// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// deaf is a caller that makes calls of its own HTTP/2, and never says that it has read
// anything of their answers, until it is told to.
type deaf struct {
	t    *testing.T
	conn net.Conn
	next uint32

	mu     sync.Mutex // of the framer's writing end, and what follows
	framer *http2.Framer
	text   *bytes.Buffer
	head   *hpack.Encoder
	status map[string]int // how many calls ended with each grpc-status
	over   error          // why the connection ended
}

// deaf begins a connection whose calls each may be sent so many bytes of their answer.
func (r *rig) deaf(window uint32) *deaf {
	r.t.Helper()
	d := &deaf{t: r.t, conn: r.connect("tcp", r.Listen()), next: 1, text: &bytes.Buffer{}, status: map[string]int{}}
	d.framer, d.head = http2.NewFramer(d.conn, d.conn), hpack.NewEncoder(d.text)
	d.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(d.conn, http2.ClientPreface)
	if err == nil {
		err = d.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err == nil {
		err = d.framer.WriteWindowUpdate(0, 1<<30) // of the connection, so that each call has its own
	}
	if err != nil {
		r.t.Fatal(err)
	}
	g := run.NewGroup(r.t.Context())
	g.Do(d.read)
	r.t.Cleanup(func() {
		d.conn.Close()
		g.Wait()
	})
	return d
}

// call sends a whole call.
func (d *deaf) call(method string, m proto.Message) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.write(method, m); err != nil {
		d.t.Fatal(err)
	}
}

// write is call for who holds the lock.
func (d *deaf) write(method string, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	err = d.headers(method)
	for b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...); err == nil && len(b) > 0; {
		n := min(len(b), 16<<10) // what a frame may have
		err = d.framer.WriteData(d.next, n == len(b), b[:n])
		b = b[n:]
	}
	d.next += 2
	return err
}

// headers sends how a call begins, for who holds the lock.
func (d *deaf) headers(method string) error {
	d.text.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "service"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		d.head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return d.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: d.next, BlockFragment: d.text.Bytes(), EndHeaders: true})
}

// begin sends a call whose message has more bytes than come.
func (d *deaf) begin(method string, size int) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.headers(method)
	for b := binary.BigEndian.AppendUint32([]byte{0}, uint32(size+1)); err == nil && size > 0; b = nil {
		b = append(b, make([]byte, min(size, 10<<10))...)
		size -= 10 << 10
		err = d.framer.WriteData(d.next, false, b)
	}
	if d.next += 2; err != nil {
		d.t.Fatal(err)
	}
}

// hear takes everything from now on.
func (d *deaf) hear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
}

// ended is how many calls ended with a grpc-status, and why the connection did.
func (d *deaf) ended(status string) (n int, over error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status[status], d.over
}

// endedAll is how many calls ended, with any status.
func (d *deaf) endedAll() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.status {
		n += k
	}
	return n
}

func (d *deaf) read(context.Context) {
	for {
		frame, err := d.framer.ReadFrame()
		d.mu.Lock()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				d.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				d.framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" {
					d.status[h.Value]++
				}
			}
		}
		if d.over = err; err != nil {
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
	}
}
