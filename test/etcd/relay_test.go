// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// relay stands between a store and etcd, so that one store can be cut off.
type relay struct {
	url    string
	target string
	mu     sync.Mutex
	listen net.Listener
	conns  []net.Conn
	wg     sync.WaitGroup
}

func between(t *testing.T, url string) *relay {
	t.Helper()
	r := &relay{target: strings.TrimPrefix(url, "http://")}
	address := runtest.Address(2379)
	r.url = "http://" + address
	r.mend(t)
	t.Cleanup(func() { r.cut(); r.wg.Wait() })
	return r
}

// mend lets connections through again.
func (r *relay) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", strings.TrimPrefix(r.url, "http://"))
	must(t, err)
	r.listen = l
	r.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.target)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				r.wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // it ends when it is cut
					in.Close()
					out.Close()
				})
			}
		}
	})
}

// cut ends all connections, and takes no new ones.
func (r *relay) cut() {
	r.listen.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}
