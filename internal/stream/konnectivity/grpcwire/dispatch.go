// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
)

// frame handles the next one, or a part of a DATA frame.
func (c *conn) frame() error {
	if c.data.left > 0 || c.data.padding > 0 {
		return c.payload()
	}
	if err := c.need(frameHead); err != nil {
		return err
	}
	f := parseFrame(c.next(frameHead))
	switch {
	case f.length > frameMost:
		return broken(http2.ErrCodeFrameSize, "a frame is too large")
	case c.block != nil && (f.kind != http2.FrameContinuation || f.stream != c.opening.stream):
		return broken(http2.ErrCodeProtocol, "a header is cut short by another frame")
	case !c.shaken && f.kind != http2.FrameSettings:
		return broken(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
	case f.kind == http2.FrameData:
		return c.onData(f)
	}
	if err := c.bounded(f); err != nil {
		return err
	}
	if err := c.need(f.length); err != nil {
		return err
	}
	b := c.next(f.length)
	switch f.kind {
	case http2.FrameHeaders:
		return c.onHeaders(f, b)
	case http2.FrameContinuation:
		return c.onContinuation(f, b)
	case http2.FrameSettings:
		return c.onSettings(f, b)
	case http2.FramePing:
		return c.onPing(f, b)
	case http2.FrameWindowUpdate:
		return c.onWindow(f, b)
	case http2.FrameRSTStream:
		return c.onReset(f, b)
	case http2.FramePushPromise:
		return broken(http2.ErrCodeProtocol, "a caller promises nothing")
	}
	return nil // GOAWAY of a caller that opens no more; priorities, and what is unknown
}

// bounded bounds the frames in turn that cost work and bring nothing. Those that are answered by nothing cost the peer
// as much, and PING has its own bound.
func (c *conn) bounded(f frame) error {
	switch f.kind {
	case http2.FramePing, http2.FrameWindowUpdate, http2.FrameRSTStream, http2.FrameContinuation:
		return nil
	}
	if c.idle++; c.idle > idleMost {
		return broken(http2.ErrCodeEnhanceYourCalm, "too many frames that bring nothing")
	}
	return nil
}

// onData begins a DATA frame.
func (c *conn) onData(f frame) error {
	if f.stream == 0 || f.stream > c.last {
		return broken(http2.ErrCodeProtocol, "DATA for a stream that was never opened")
	}
	if c.room -= f.length; c.room < 0 {
		return broken(http2.ErrCodeFlowControl, "more than the window of the connection")
	}
	c.taken += f.length
	padding, head := 0, 0
	if f.flags.Has(http2.FlagDataPadded) {
		if f.length == 0 {
			return broken(http2.ErrCodeFrameSize, "padding is missing")
		}
		if err := c.need(1); err != nil {
			return err
		}
		if padding, head = int(c.next(1)[0]), 1; padding+head > f.length {
			return broken(http2.ErrCodeProtocol, "more padding than frame")
		}
	}
	c.data = body{stream: c.stream(f.stream), left: f.length - head - padding, padding: padding,
		end: f.flags.Has(http2.FlagDataEndStream)}
	switch s := c.data.stream; {
	case c.data.left > 0:
		c.idle = 0
	case s != nil && c.data.end: // the end of a direction, which a stream has once
	default:
		if err := c.bounded(f); err != nil {
			return err
		}
	}
	if s := c.data.stream; s != nil {
		if code, ok := s.announce(f.length, head+padding); !ok {
			c.refuse(s.id, code)
			c.drop(s)
			c.data.stream = nil
		}
	}
	return c.payload()
}

// payload passes on what is here of a DATA frame, and gives back its window.
func (c *conn) payload() error {
	for d := &c.data; d.left+d.padding > 0; {
		if err := c.need(1); err != nil {
			return err
		}
		here := c.filled - c.at
		if n := min(d.left, here); n > 0 {
			b := c.next(n)
			d.left -= n
			here -= n
			if d.stream != nil {
				d.stream.deliver(b)
			}
		}
		if d.left == 0 {
			n := min(d.padding, here)
			c.next(n)
			d.padding -= n
		}
	}
	if c.data.end && c.data.stream != nil {
		c.data.stream.finished()
	}
	c.data = body{}
	if c.taken < c.Burst/4 {
		return nil
	}
	n := c.taken
	c.room, c.taken = c.room+n, 0
	return c.out.answer(func(b []byte) []byte { return appendWindow(b, 0, n) })
}

func (c *conn) onSettings(f frame, b []byte) error {
	ack := f.flags.Has(http2.FlagSettingsAck)
	if f.stream != 0 || len(b)%6 != 0 || ack && len(b) > 0 {
		return broken(http2.ErrCodeFrameSize, "SETTINGS that are none")
	}
	if !c.shaken {
		defer c.out.flush() // a handler must say nothing before our settings
		c.shaken = true
		c.raw.SetDeadline(time.Time{})
		c.heard.Store(time.Now().UnixNano())
		c.mu.Lock()
		c.watch = time.AfterFunc(c.Keepalive, c.watchOver)
		c.mu.Unlock()
	}
	if ack {
		c.stateless = true
		return nil
	}
	window := -1 // the last one counts: it costs a walk over all streams
	for ; len(b) > 0; b = b[6:] {
		id, v := http2.SettingID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
		if err := (http2.Setting{ID: id, Val: v}).Valid(); err != nil {
			return broken(http2.ErrCodeProtocol, "a setting is out of its range")
		}
		if id == http2.SettingInitialWindowSize {
			window = int(v)
		}
	}
	if window >= 0 && !c.resize(window) {
		return broken(http2.ErrCodeFlowControl, "a window is too large")
	}
	return c.out.answer(func(b []byte) []byte {
		return appendFrame(b, frame{kind: http2.FrameSettings, flags: http2.FlagSettingsAck})
	})
}

// pings are those of the peer.
type pings struct {
	last    time.Time
	strikes int
}

// onPing answers, and ends the connection of a peer that sends many while it gets nothing, as gRPC does.
func (c *conn) onPing(f frame, b []byte) error {
	if f.stream != 0 || len(b) != 8 {
		return broken(http2.ErrCodeFrameSize, "a PING that is none")
	}
	if f.flags.Has(http2.FlagPingAck) {
		return nil
	}
	now := time.Now()
	c.mu.Lock()
	least := c.policy.pingIdle
	if len(c.streams) > 0 {
		least = c.policy.pingEvery
	}
	c.mu.Unlock()
	if c.out.sent.Swap(false) {
		c.pings = pings{}
	} else if now.Sub(c.pings.last) < least {
		c.pings.strikes++
	}
	c.pings.last = now
	if c.pings.strikes > 2 {
		return broken(http2.ErrCodeEnhanceYourCalm, "too_many_pings") // gRPC's word for it
	}
	return c.out.answer(func(out []byte) []byte {
		return append(appendFrame(out, frame{kind: http2.FramePing, flags: http2.FlagPingAck, length: 8}), b...)
	})
}

func (c *conn) onReset(f frame, b []byte) error {
	if len(b) != 4 || f.stream == 0 || f.stream > c.last {
		return broken(http2.ErrCodeProtocol, "a RST_STREAM that is none")
	}
	if s := c.stream(f.stream); s != nil {
		c.drop(s)
	}
	return nil
}
