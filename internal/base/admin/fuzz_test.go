// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// FuzzAnswers lets whoever listens at the hub's address answer anything. Each
// request ends with a fault, or with what was read; a stream carries exactly the
// bytes behind its head.
func FuzzAnswers(f *testing.F) {
	const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tombolo-stream\r\n\r\n"
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\n\r\n{\"clusters\":[{\"name\":\"c1\",\"agents\":[{}]}]}",
		"HTTP/1.1 503 x\r\nTombolo-Fault: no_agent\r\nContent-Length: 30\r\n\r\n{\"code\":\"no_agent\",\"what\":\"x\"}", "HTTP/1.1 302 x\r\nLocation: http://x/\r\n\r\n",
		switched, switched + "the first bytes", "HTTP/1.1 100 Continue\r\n\r\n" + switched, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "",
		"HTTP/1.1 500 x\r\nTombolo-Fault: \r\n\r\n\x1b[2J", "HTTP/1.1 500 x\r\nTombolo-Fault: evil\r\n\r\n\x1b[2J",
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(2))
	}
	path := filepath.Join(f.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	answers, ended := make(chan []byte), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			conn.Read(make([]byte, 4<<10)) // the request
			conn.Write(<-answers)
			conn.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	f.Cleanup(func() { ln.Close(); <-ended })
	c := admin.OverSocket(path)
	f.Fuzz(func(t *testing.T, answer []byte, kind uint8) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		given := make(chan struct{})
		go func() {
			defer close(given)
			select {
			case answers <- answer:
			case <-ctx.Done():
			}
		}()
		defer func() { cancel(); <-given }()
		var err error
		var got bytes.Buffer
		switch kind % 3 {
		case 0:
			var st admin.Status
			err = c.Call(ctx, "GET", "/v1/status", nil, &st)
		case 1:
			_, err = c.Download(ctx, "/v1/backup", &got)
		case 2:
			var conn net.Conn
			if conn, err = c.Stream(ctx, "c1", "10.0.0.1:80"); err == nil {
				defer conn.Close()
				if !bytes.Contains(answer, []byte(admin.StreamProtocol)) {
					t.Errorf("%q begins a stream", answer)
				}
				io.Copy(&got, conn)
				if !bytes.HasSuffix(answer, got.Bytes()) {
					t.Errorf("%q carries %q", answer, got.Bytes())
				}
			}
		}
		if err == nil {
			return
		}
		var coded *fault.Fault
		if !errors.As(err, &coded) || coded.Code == "" || ctx.Err() != nil {
			t.Errorf("an error without its code, or too late: %v", err)
		}
		said := string(coded.Code) + coded.What + coded.Next
		if coded.Unwrap() == nil { // else Why is the library's, which quotes
			said += coded.Why
		}
		if strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) || len(said) > 4<<10 {
			t.Errorf("it would reach the screen as %q", said)
		}
	})
}
