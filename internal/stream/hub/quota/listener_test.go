// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// oneByOne gives the connections that it is fed with.
type oneByOne struct {
	net.Listener
	conns chan net.Conn
}

func (l oneByOne) Accept() (net.Conn, error) { return <-l.conns, nil }

// TestASocketKeepsOneAccount: a listener outlives the account of its caller when many
// others come and it has had no connection for long. What comes later counts in the
// account that status, dials and limits see, and the bound holds over both.
func TestASocketKeepsOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := testBook(t)
		l := book.limits
		l.Caller.Sessions = 1
		book.Bound(l)
		const me = "unix:c1/konnectivity"
		feed := oneByOne{conns: make(chan net.Conn, 4)}
		refused := 0
		ln := &Listener{
			Listener: feed, account: func(net.Conn) *Account { return book.Caller(me) },
			refuse: func(conn net.Conn, f *fault.Fault) { refused++; conn.Close() },
		}
		accept := func() net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			feed.conns <- near
			conn, _ := ln.Accept()
			return conn
		}
		evict := func() {
			time.Sleep(callerKept + time.Second)
			for i := range callerRecords + 1 {
				book.Caller(fmt.Sprint("other", i))
			}
		}
		first := book.Caller(me)
		accept().Close()
		evict()
		if book.callers[me] == first {
			t.Fatal("nothing was evicted")
		}
		conn := accept()
		mine := book.Caller(me)
		if mine.sessions.Load() != 1 || first.sessions.Load() != 0 {
			t.Errorf("%d connections count now, %d in the account that is gone", mine.sessions.Load(), first.sessions.Load())
		}
		evict() // live: it stays
		if book.Caller(me) != mine {
			t.Error("an account with a connection was evicted")
		}
		if f := ln.account(nil).Connect(); f == nil || f.Code != fault.CodeLimit {
			t.Errorf("one beyond the bound is told %v", f)
		}
		conn.Close()
		if book.Caller(me) != mine || mine.sessions.Load() != 0 {
			t.Errorf("%d connections are left", mine.sessions.Load())
		}
		accept().Close()
		if refused != 0 {
			t.Errorf("%d were refused", refused)
		}
	})
}
