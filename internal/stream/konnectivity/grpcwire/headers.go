// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// list is a header list while it is decoded.
type list struct {
	keep []string
	left int // bytes that it may still have

	method, path, content, encoding, timeout string
	kept                                     metadata.MD
	malformed, regular                       bool
}

func (l *list) add(f hpack.HeaderField) {
	if l.left -= int(f.Size()); l.left < 0 || l.malformed {
		return
	}
	one := func(into *string) {
		l.malformed = *into != "" || f.Value == "" || l.regular
		*into = f.Value
	}
	if strings.HasPrefix(f.Name, ":") {
		switch f.Name {
		case ":method":
			one(&l.method)
		case ":path":
			one(&l.path)
		case ":scheme", ":authority":
			l.malformed = l.regular
		default:
			l.malformed = true
		}
		return
	}
	l.regular = true
	if !httpguts.ValidHeaderFieldName(f.Name) || f.Name != strings.ToLower(f.Name) ||
		!httpguts.ValidHeaderFieldValue(f.Value) {
		l.malformed = true
		return
	}
	switch f.Name {
	case "connection":
		l.malformed = true
	case "content-type":
		l.content = f.Value
	case "grpc-encoding":
		l.encoding = f.Value
	case "grpc-timeout":
		l.timeout = f.Value
	default:
		if slices.Contains(l.keep, f.Name) {
			if l.kept == nil {
				l.kept = metadata.MD{}
			}
			l.kept[f.Name] = append(l.kept[f.Name], f.Value)
		}
	}
}

// onHeaders begins a header.
func (c *conn) onHeaders(f frame, b []byte) error {
	if f.stream%2 == 0 {
		return broken(http2.ErrCodeProtocol, "HEADERS for a stream that a caller cannot open")
	}
	b, err := unpad(f, b)
	if err != nil {
		return err
	}
	c.opening, c.pieces = f, 0
	if f.flags.Has(http2.FlagHeadersEndHeaders) {
		return c.header(b)
	}
	c.block = append(make([]byte, 0, len(b)), b...)
	return nil
}

func (c *conn) onContinuation(f frame, b []byte) error {
	if c.block == nil {
		return broken(http2.ErrCodeProtocol, "a header continues that has not begun")
	}
	if c.pieces++; c.pieces > piecesMost || len(c.block)+len(b) > c.Header {
		return broken(http2.ErrCodeEnhanceYourCalm, "a header is too large")
	}
	c.block = append(c.block, b...)
	if !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	b, c.block = c.block, nil
	return c.header(b)
}

// header handles a whole one. It is decoded whatever becomes of its stream, for the ones behind depend on it.
func (c *conn) header(b []byte) error {
	l := &list{keep: c.Metadata, left: c.Header}
	if c.decoder == nil {
		c.decoder = hpack.NewDecoder(tableMost, nil)
		c.decoder.SetMaxStringLength(c.Header)
	}
	c.decoder.SetEmitFunc(l.add)
	_, err := c.decoder.Write(b)
	if err == nil {
		err = c.decoder.Close()
	}
	if err != nil {
		return broken(http2.ErrCodeCompression, "a header cannot be decoded")
	}
	if c.decoder.SetEmitFunc(ignore); c.stateless {
		c.decoder = nil // the next one begins as empty as this one is
	}
	f := c.opening
	switch end := f.flags.Has(http2.FlagHeadersEndStream); {
	case f.stream > c.last:
		c.last = f.stream
		return c.open(l, f.stream, end)
	default:
		if s := c.stream(f.stream); s != nil && end && !l.malformed && l.left >= 0 {
			s.finished() // a trailer
		} else if s != nil {
			c.drop(s)
			return c.refuse(f.stream, http2.ErrCodeProtocol)
		}
	}
	return nil
}

func ignore(hpack.HeaderField) {}

// open begins a stream.
func (c *conn) open(l *list, id uint32, end bool) error {
	switch {
	case c.draining():
		c.goAway() // first, so that the stream is not tried here again
		return c.refuse(id, http2.ErrCodeRefusedStream)
	case l.left < 0:
		return c.refuse(id, http2.ErrCodeEnhanceYourCalm)
	case l.malformed || l.method == "" || l.path == "":
		return c.refuse(id, http2.ErrCodeProtocol)
	case l.method != http.MethodPost:
		return c.answerAlone(id, http.StatusMethodNotAllowed, status.Newf(codes.Internal, "the method is not POST"))
	case l.content != contentType && !strings.HasPrefix(l.content, contentType+"+") &&
		!strings.HasPrefix(l.content, contentType+";"):
		return c.answerAlone(id, http.StatusUnsupportedMediaType,
			status.Newf(codes.Internal, "the content type is not %s", contentType))
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(l.path, "/"), "/")
	switch {
	case service != c.Service:
		return c.answerAlone(id, http.StatusOK, status.New(codes.Unimplemented, "unknown service "+service))
	case method != c.Method:
		return c.answerAlone(id, http.StatusOK,
			status.New(codes.Unimplemented, "unknown method "+method+" for service "+service))
	case l.encoding != "" && l.encoding != "identity":
		return c.answerAlone(id, http.StatusOK, status.New(codes.Unimplemented, "messages may not be compressed"))
	}
	within, ok := timeoutOf(l.timeout)
	if !ok {
		return c.answerAlone(id, http.StatusOK, status.New(codes.Internal, "malformed grpc-timeout"))
	}
	s := c.newStream(id)
	if s == nil {
		return c.refuse(id, http2.ErrCodeRefusedStream)
	}
	c.idle = 0
	ctx := c.ctx
	if l.kept != nil {
		ctx = metadata.NewIncomingContext(ctx, l.kept)
	}
	if l.timeout == "" {
		s.ctx, s.cancel = context.WithCancel(ctx)
	} else {
		s.ctx, s.cancel = context.WithTimeout(ctx, within)
		context.AfterFunc(s.ctx, s.late)
	}
	if end {
		s.finished()
	}
	c.group.Do(s.serve)
	return nil
}

// timeoutOf reads grpc-timeout: at most eight digits and a unit.
func timeoutOf(s string) (time.Duration, bool) {
	if s == "" {
		return 0, true
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond,
		'u': time.Microsecond, 'n': time.Nanosecond}
	unit, ok := units[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if err != nil || !ok || len(s) > 9 {
		return 0, false
	}
	return min(time.Duration(n), time.Duration(1<<63-1)/unit) * unit, true
}

// refuse resets a stream.
func (c *conn) refuse(id uint32, code http2.ErrCode) error {
	return c.out.answer(func(b []byte) []byte { return appendReset(b, id, code) })
}

// answerAlone ends a stream that has no handler.
func (c *conn) answerAlone(id uint32, httpStatus int, st *status.Status) error {
	head := appendHead(nil, httpStatus)
	head = appendStatus(head, st)
	return c.out.answer(func(b []byte) []byte {
		b = appendHeaders(b, id, head, true)
		return appendReset(b, id, http2.ErrCodeNo)
	})
}

const contentType = "application/grpc"

// noTable says that HPACK's table has no bytes. It stands before every header: the peer may have changed its bound.
const noTable = 0x20

// appendHead appends the head of a response.
func appendHead(b []byte, httpStatus int) []byte {
	b = append(b, noTable)
	if httpStatus == http.StatusOK {
		b = append(b, 0x88) // of the table that everybody has
	} else {
		b = appendField(b, ":status", strconv.Itoa(httpStatus))
	}
	return appendField(b, "content-type", contentType)
}

func appendStatus(b []byte, st *status.Status) []byte {
	b = appendField(b, "grpc-status", strconv.Itoa(int(st.Code())))
	if st.Message() != "" {
		b = appendField(b, "grpc-message", escape(st.Message()))
	}
	return b
}

// escape is gRPC's: what is not printable is percent-encoded.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// appendHeaders appends HEADERS, and what of a large header has no place in it.
func appendHeaders(b []byte, id uint32, head []byte, end bool) []byte {
	f := frame{kind: http2.FrameHeaders, stream: id}
	if end {
		f.flags = http2.FlagHeadersEndStream
	}
	for {
		piece := head[:min(len(head), frameMost)]
		if head = head[len(piece):]; len(head) == 0 {
			f.flags |= http2.FlagHeadersEndHeaders
		}
		f.length = len(piece)
		b = append(appendFrame(b, f), piece...)
		if len(head) == 0 {
			return b
		}
		f.kind, f.flags = http2.FrameContinuation, 0
	}
}
