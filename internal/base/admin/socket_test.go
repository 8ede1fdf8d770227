// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func refusedBy(errno syscall.Errno) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/x/hub.sock", Net: "unix"}, Err: os.NewSyscallError("connect", errno)}
	}
}

// A socket that may not be opened is no hub that is away, and no address is told that only this package knows.
func TestSocketThatMayNotBeOpened(t *testing.T) {
	for errno, code := range map[syscall.Errno]fault.Code{
		syscall.EACCES: fault.CodeUnauthorized, syscall.EPERM: fault.CodeUnauthorized,
		syscall.ENOENT: fault.CodeHubAway, syscall.ECONNREFUSED: fault.CodeHubAway,
	} {
		c := newClient("the admin socket /x/hub.sock", refusedBy(errno))
		_, stream := c.Stream(t.Context(), "c1", "h:1")
		for _, err := range []error{c.Call(t.Context(), http.MethodGet, "/v1/status", nil, &struct{}{}), stream} {
			if !fault.Has(err, code) || !strings.Contains(err.Error(), "/x/hub.sock") || strings.Contains(err.Error(), "http://") {
				t.Errorf("%v: %v, want %s", errno, err, code)
			}
		}
	}
}

func TestAwait(t *testing.T) {
	for name, tc := range map[string]struct {
		errno syscall.Errno
		after int // dials until somebody answers; 0: never
		most  time.Duration
		notes int
		took  time.Duration
	}{
		"it is not there yet":           {syscall.ENOENT, 3, limit.SocketWait, 1, 3 * limit.SocketPoll},
		"it is left of one that is not": {syscall.ECONNREFUSED, 1, limit.SocketWait, 1, limit.SocketPoll},
		"nobody comes":                  {syscall.ENOENT, 0, limit.SocketWait, 1, limit.SocketWait},
		"it may not be opened":          {syscall.EACCES, 0, limit.SocketWait, 0, 0},
		"nobody waits":                  {syscall.ENOENT, 1, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials, notes, begun := 0, 0, time.Now()
				there, other := net.Pipe()
				defer there.Close()
				defer other.Close()
				c := newClient("x", func(ctx context.Context) (net.Conn, error) {
					if dials++; tc.after > 0 && dials > tc.after {
						return there, nil
					}
					return refusedBy(tc.errno)(ctx)
				}).Await(tc.most, func() { notes++ })
				conn, err := c.dial(t.Context())
				if want := tc.after > 0 && tc.most > 0; (err == nil) != want || want && conn != there {
					t.Errorf("%v, %v", conn, err)
				}
				if took := time.Since(begun); notes != tc.notes || took != tc.took {
					t.Errorf("%d notes, %v; want %d, %v", notes, took, tc.notes, tc.took)
				}
			})
		})
	}
}

// What is not there when the command begins is asked when it is.
func TestAwaitAsksWhatComes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) })}
	defer srv.Close()
	c := OverSocket(path).Await(limit.SocketWait, func() {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		go srv.Serve(ln)
	})
	if err := c.Call(t.Context(), http.MethodGet, "/v1/status", nil, &struct{}{}); err != nil {
		t.Error(err)
	}
}

// The text of a refusal names its code once.
func TestRefusalAsText(t *testing.T) {
	res := &http.Response{Header: http.Header{"Tombolo-Fault": {"policy_denied"}}, Body: io.NopCloser(strings.NewReader("policy_denied: the hub refuses\n"))}
	if got := readFault(res).Error(); got != "policy_denied: the hub refuses" {
		t.Errorf("%q", got)
	}
}
