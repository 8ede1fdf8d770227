// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// unknowing is a context that never learns that its deadline has passed.
type unknowing struct {
	context.Context
	at time.Time
}

func (u unknowing) Deadline() (time.Time, bool) { return u.at, true }
func (unknowing) Done() <-chan struct{}         { return nil }

// TestADialEndsWithItsContext in each place where a dial can wait, and for each way in
// which it can end: the code says who ended it, not what that broke.
func TestADialEndsWithItsContext(t *testing.T) {
	never := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: ctx.Err()}
	}
	answering := func(answer func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				answer(far)
			}()
			return near, nil
		}
	}
	after := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	places := map[string]struct {
		connect func(context.Context, string, string) (net.Conn, error)
		secure  bool
	}{
		"on the way to the hub":        {never, false},
		"on the way by TCP":            {never, true},
		"in the handshake":             {answering(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), true},
		"before the handshake is read": {nil, true},
		"before the request is read":   {nil, false},
		"before the answer":            {answering(after("")), false},
		"in the middle of the answer":  {answering(after("HTTP/1.1 200 OK\r\nX: ")), false},
	}
	ours := errors.New("the work is over")
	ends := map[string]struct {
		ctx  func(context.Context) (context.Context, func())
		code string
		is   []error
	}{
		"the caller gives up": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		}, "dial_canceled", []error{context.Canceled}},
		"the caller says why": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(ours) }
		}, "dial_canceled", []error{context.Canceled, ours}},
		"the context's deadline": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return ctx, cancel
		}, "dial_timeout", []error{context.DeadlineExceeded}},
		"the dialer's timeout": {func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }, "dial_timeout", []error{context.DeadlineExceeded}},
	}
	for where, place := range places {
		for how, end := range ends {
			t.Run(where+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					over := make(chan struct{})
					connect := place.connect
					if connect == nil {
						connect = answering(func(net.Conn) { <-over })
					}
					d := &Dialer{Socket: "s", Timeout: time.Minute, connect: connect}
					if place.secure {
						d.Socket, d.Hub = "", "hub:1"
						d.TLS = func() (*tls.Config, error) { return &tls.Config{ServerName: "hub"}, nil }
					}
					ctx, giveUp := end.ctx(t.Context())
					defer giveUp()
					if end.code == "dial_canceled" {
						time.AfterFunc(time.Second, giveUp)
					}
					_, err := d.DialContext(ctx, "tcp", "a:1")
					close(over)
					wants(t, err, end.code, end.is)
				})
			})
		}
	}
}

func wants(t *testing.T, err error, code string, is []error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code || e.Timeout() != (code == "dial_timeout") {
		t.Fatalf("%#v, want %s", err, code)
	}
	for _, want := range is {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
}

// TestTheNetworkIsFirst: the connection runs out of time before the context knows that
// it has, as on a busy machine. A kernel that gives up before is no end of the dial.
func TestTheNetworkIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := time.Second
		d := &Dialer{Socket: "s", connect: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(wait)
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.ErrDeadlineExceeded}
		}}
		ctx := unknowing{t.Context(), time.Now().Add(wait)}
		_, err := d.DialContext(ctx, "tcp", "a:1")
		wants(t, err, "dial_timeout", []error{context.DeadlineExceeded})
		ctx.at = time.Now().Add(time.Minute)
		var e *Error
		if _, err := d.DialContext(ctx, "tcp", "a:1"); !errors.As(err, &e) || e.Code != "hub_unreachable" {
			t.Errorf("%#v", err)
		}
	})
}

// TestWhatWasSaidStays, though the context has ended by then.
func TestWhatWasSaidStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Dialer{Socket: "s", Timeout: time.Second, connect: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(far))
				_, _ = io.WriteString(far, "HTTP/1.1 403 policy_denied\r\nTombolo-Fault: policy_denied\r\nContent-Length: 99\r\n\r\npolicy")
				_, _ = io.Copy(io.Discard, far)
			}()
			return near, nil
		}}
		_, err := d.DialContext(t.Context(), "tcp", "a:1")
		var e *Error
		if !errors.As(err, &e) || e.Code != "policy_denied" || e.Status != 403 {
			t.Errorf("%#v", err)
		}
	})
}
