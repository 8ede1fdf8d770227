// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"net"
	"sync"
)

// ByCertificate knows the live connections of each certificate, so that a revocation
// ends them too.
type ByCertificate struct {
	mu    sync.Mutex
	conns map[string]map[net.Conn]struct{}
	total int
}

func NewByCertificate() *ByCertificate {
	return &ByCertificate{conns: map[string]map[net.Conn]struct{}{}}
}

// Add reports false if there are as many connections already as there may be.
func (t *ByCertificate) Add(serial string, c net.Conn, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total >= most {
		return false
	}
	if t.conns[serial] == nil {
		t.conns[serial] = map[net.Conn]struct{}{}
	}
	t.conns[serial][c] = struct{}{}
	t.total++
	return true
}

func (t *ByCertificate) Remove(serial string, c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns[serial], c)
	t.total--
	if len(t.conns[serial]) == 0 {
		delete(t.conns, serial)
	}
}

// CloseAll closes the connections of a certificate except the one from the address
// except, and counts them.
func (t *ByCertificate) CloseAll(serial, except string) int {
	t.mu.Lock()
	conns := make([]net.Conn, 0, len(t.conns[serial]))
	for c := range t.conns[serial] {
		if at := c.RemoteAddr(); at == nil || at.String() != except {
			conns = append(conns, c)
		}
	}
	t.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	return len(conns)
}
