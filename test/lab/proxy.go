// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Proxy is an HTTP proxy as company networks have it: CONNECT to port 443 is all
// that it does. It connects to IP addresses only, since a lab has no names.
type Proxy struct {
	host     *Host
	listener net.Listener
	want     string // of Proxy-Authorization, or none

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	tunnels  int
	refusals int
}

// proxyPort is the only one that it connects to.
const proxyPort = 443

// proxyPatience bounds a proxy's own connecting.
const proxyPatience = 10 * time.Second

// StartProxy starts a proxy on the host. With a user, clients have to say that and
// the password. It ends with the lab.
func StartProxy(h *Host, address, user, password string) (*Proxy, error) {
	listener, err := h.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{host: h, listener: listener, conns: map[net.Conn]struct{}{}}
	if user != "" {
		p.want = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	h.Network().Keep(p)
	go p.accept()
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Tunnels returns how many connections it made and how many it refused.
func (p *Proxy) Tunnels() (made, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnels, p.refusals
}

// Close ends it and every connection through it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	return p.listener.Close()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			if p.adopt(conn) {
				p.serve(conn)
			}
			p.drop(conn)
		}()
	}
}

func (p *Proxy) adopt(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = struct{}{}
	return !p.closed
}

func (p *Proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	conn.Close()
}

func (p *Proxy) serve(conn net.Conn) {
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	target, err := netip.ParseAddrPort(request.Host)
	var status string
	switch {
	case p.want != "" && request.Header.Get("Proxy-Authorization") != p.want:
		status = "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"lab\""
	case request.Method != http.MethodConnect || err != nil || target.Port() != proxyPort:
		status = "403 Forbidden"
	}
	var upstream net.Conn
	if status == "" {
		ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
		defer cancel()
		if upstream, err = p.host.DialContext(ctx, "tcp", target.String()); err != nil {
			status = "502 Bad Gateway"
		}
	}
	p.count(status == "")
	if status != "" {
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status)
		return
	}
	defer p.drop(upstream)
	if !p.adopt(upstream) {
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	tunnel(upstream, reader, conn)
}

func (p *Proxy) count(made bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made {
		p.tunnels++
	} else {
		p.refusals++
	}
}

// tunnel copies both ways until both have ended. The client's first bytes may
// stand in the reader.
func tunnel(upstream net.Conn, reader io.Reader, client net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(upstream, reader)
		_ = upstream.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, upstream)
	_ = client.(*net.TCPConn).CloseWrite()
	<-done
}
