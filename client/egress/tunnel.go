// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// tunnel is the life of one dial and of its connection:
//
//	wait --DIAL_RSP(id)--> open --Close: CLOSE_REQ, or CLOSE_RSP--> done
//	  \--DIAL_RSP(error), or giveUp: DIAL_CLS--> done
//
// sender makes what is sent, when net/http asks for it; receive takes what comes, and ends with the stream. A pipe for
// each direction, which has deadlines, ties both to the caller.
type tunnel struct {
	*sender
	cancel context.CancelFunc // ends the stream at once
	target string
	answer chan error // of the dial, once

	in    net.Conn // where receive writes what comes
	out   net.Conn // where the caller reads it
	write net.Conn // where the caller writes
	end   error    // of the connection, set before in is closed; io.EOF is an orderly one

	// What is receive's own:
	id      int64  // of an open connection
	refused string // of a refused dial
	buf     []byte
}

func newTunnel(target string, cancel context.CancelFunc) *tunnel {
	t := &tunnel{cancel: cancel, target: target, answer: make(chan error, 1)}
	t.in, t.out = net.Pipe()
	var read net.Conn
	read, t.write = net.Pipe()
	t.sender = newSender(read, target, rand.Int64())
	return t
}

// giveUp ends a dial: the sender tells the far side, whether it has answered by now or not.
func (t *tunnel) giveUp() {
	close(t.abandoned)
	t.close()
}

// close ends both directions on the caller's side. The far side has a moment to end the stream.
func (t *tunnel) close() {
	t.write.Close()
	t.out.Close()
	time.AfterFunc(closeWait, t.cancel)
}

// receive takes the answer to the request, and all that comes until the stream ends.
func (t *tunnel) receive(res *http.Response, err error) {
	var trailer http.Header
	if err == nil {
		err = t.packets(res)
		res.Body.Close()
		if trailer = res.Trailer; trailer.Get(headerStatus) == "" {
			trailer = res.Header
		}
	}
	t.stop()
	switch {
	case t.id == 0:
		t.answer <- t.refusal(err, trailer)
	case t.end == nil:
		t.end = cut(cmp.Or(messageOf(trailer), err.Error()))
	}
	t.in.Close()
}

// refusal is why there is no connection.
func (t *tunnel) refusal(err error, trailer http.Header) error {
	code := trailer.Get(headerFault) // of a hub
	switch {
	case t.refused != "":
		return &client.Error{Code: cmp.Or(code, string(fault.CodeDialUnreachable)), Reason: t.refused}
	case err == io.EOF:
		return &client.Error{Code: cmp.Or(code, string(fault.CodeHubAway)),
			Reason: "the proxy refused the stream: " + cmp.Or(messageOf(trailer), "it ended without an answer")}
	case fault.Has(err, fault.CodeHubAway), fault.Has(err, fault.CodeFrameInvalid):
		return err
	}
	return fault.New(fault.CodeHubAway, "the proxy gave no answer").Because(err)
}

// cut is the error of a connection that did not end in an orderly way.
func cut(why string) error {
	return &client.Error{Code: string(fault.CodeStreamReset), Asked: true, Err: client.ErrCut,
		Reason: client.ErrCut.Error() + ": " + untrusted.Text(why, limit.FaultText)}
}

// Headers of gRPC, and the fault code of a hub.
const (
	headerStatus  = "Grpc-Status"
	headerMessage = "Grpc-Message"
	headerFault   = "Tombolo-Fault"
)

// messageOf is the text of gRPC's status, empty of a good one.
func messageOf(trailer http.Header) string {
	if trailer.Get(headerStatus) == "0" {
		return ""
	}
	text, err := url.PathUnescape(trailer.Get(headerMessage))
	if err != nil {
		text = trailer.Get(headerMessage)
	}
	return untrusted.Text(text, limit.FaultText)
}

// packets handles what comes; io.EOF is the stream's end.
func (t *tunnel) packets(res *http.Response) error {
	kind := res.Header.Get("Content-Type")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/grpc") {
		return fault.Newf(fault.CodeHubAway, "what answers is no konnectivity server: %s, %q",
			untrusted.Text(res.Status, nameShown), untrusted.Text(kind, nameShown))
	}
	for {
		p, err := t.next(res.Body)
		if err != nil {
			return err
		}
		switch p.Type {
		case packet.DialResponse:
			if p.Random == t.random && t.id == 0 && t.refused == "" {
				t.dialled(p)
			}
		case packet.CloseDial:
			if t.id == 0 && t.refused == "" {
				t.refuse("the proxy gave the dial up")
			}
		case packet.Data:
			if t.id != 0 && p.ConnectID == t.id {
				_, _ = t.in.Write(p.Payload) // it waits for the caller to read; one that has closed takes nothing
			}
		case packet.CloseResponse:
			if t.id != 0 && p.ConnectID == t.id && t.end == nil {
				t.closed(p)
			}
		}
	}
}

// dialled takes the answer to the dial.
func (t *tunnel) dialled(p packet.Packet) {
	switch {
	case p.Error != "":
		t.refuse(untrusted.Text(p.Error, limit.FaultText))
	case p.ConnectID == 0:
		t.refuse("the proxy answered without an id")
	default:
		t.id = p.ConnectID
		t.opened <- t.id
		t.answer <- nil
	}
}

// refuse notes why the dial is refused; the stream's trailer may have a code for it.
func (t *tunnel) refuse(why string) {
	t.refused = why
	t.stop()
	time.AfterFunc(trailerWait, t.cancel)
}

// closed ends the connection, as the target or the far side has.
func (t *tunnel) closed(p packet.Packet) {
	t.end = io.EOF
	if p.Error != "" {
		t.end = cut(p.Error)
	}
	t.stop()
	t.in.Close()
	time.AfterFunc(closeWait, t.cancel)
}

// next reads a packet, which is valid until the next one.
func (t *tunnel) next(from io.Reader) (packet.Packet, error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return packet.Packet{}, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if head[0] != 0 || n > limit.KonnectivityPacket {
		return packet.Packet{}, fault.New(fault.CodeFrameInvalid, "the proxy sends what is no packet").
			Whyf("it is compressed, or has more than %d bytes", limit.KonnectivityPacket)
	}
	if cap(t.buf) < n || cap(t.buf) > keptBuffer && n <= keptBuffer {
		t.buf = make([]byte, n)
	}
	if _, err := io.ReadFull(from, t.buf[:n]); err != nil {
		return packet.Packet{}, fault.New(fault.CodeFrameInvalid, "the proxy ended within a packet").Because(err)
	}
	return packet.Parse(t.buf[:n])
}
