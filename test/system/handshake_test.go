// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// oneByteAtATime is a connection of a peer whose every byte is a packet.
type oneByteAtATime struct{ *net.TCPConn }

func (c oneByteAtATime) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// A peer whose bytes come one by one is slow and no attack: it is served.
func TestTLSByteByByte(t *testing.T) {
	s := besieged(t)
	cert := s.enrol(s.token("c1").Join)
	s.begin()
	s.during(func() error {
		raw, err := net.Dial("tcp", s.listen)
		if err != nil {
			return err
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(runtest.Patience))
		conn := tls.Client(oneByteAtATime{raw.(*net.TCPConn)}, anyHub(&cert.Certificate, trust.ALPNSession))
		if w := greet(t, conn, hello("slow")); w.GetRefusal() != nil {
			return fmt.Errorf("refused: %v", w)
		}
		return nil
	})
	s.lifted()
}

// Handshakes that stop half-way fill all places of unknown peers, and an agent still
// gets in: they lose theirs to it.
func TestAnAgentComesThroughHalfHandshakes(t *testing.T) {
	s := besieged(t)
	join := s.token("c1").Join
	half := clientHello(t, nil)
	s.begin()
	var stuck []net.Conn
	defer func() {
		for _, c := range stuck {
			c.Close()
		}
	}()
	s.during(func() error {
		for i := range limit.Unauthenticated + 50 {
			conn, err := net.Dial("tcp", s.listen)
			if err != nil {
				return err
			}
			stuck = append(stuck, conn)
			conn.Write(half[:len(half)*(i%3)/2]) // nothing, a half, and all of the first flight
		}
		return nil
	})
	s.costs(limit.Unauthenticated+50, 30)
	s.holds(64 << 20)
	a := startAgent(t, agentSpec{join: join})
	s.others("while unknown peers hold every place")
	a.stop()
	for _, c := range stuck {
		c.Close()
	}
	s.lifted()
}

// Certificates that nobody has issued are refused one by one, at the price of a
// handshake each.
func TestFloodOfBadCertificates(t *testing.T) {
	s := besieged(t)
	forged := selfSigned(t, "spiffe://tombolo.internal/cluster/c2/agent/agent-x")
	long := forged // with as many others behind it as a handshake takes
	for range 30 {
		long.Certificate = append(long.Certificate[:len(long.Certificate):len(long.Certificate)], forged.Certificate[0])
	}
	s.begin()
	s.during(func() error {
		for i := range times(manyHandshakes) {
			cert := forged
			if i%2 == 0 {
				cert = long
			}
			conn, err := tls.Dial("tcp", s.listen, anyHub(&cert, trust.ALPNSession))
			if err != nil {
				return err
			}
			conn.SetDeadline(time.Now().Add(runtest.Patience))
			if r := greet(t, conn, hello("x")).GetRefusal(); r.GetCode() != "ca_mismatch" {
				return fmt.Errorf("refused with %v", r)
			}
			conn.Close()
		}
		return nil
	})
	s.holds(32 << 20)
	s.costs(times(manyHandshakes), 30)
	s.lifted()
}

// clientHello is the first record of a handshake, with more extensions behind it.
func clientHello(t *testing.T, more []byte) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		defer near.Close()
		tls.Client(near, anyHub(nil, "http/1.1")).Handshake() // fails when the pipe ends
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	// type(1) length(3) version(2) random(32), then three lists before the extensions.
	at := 38
	at += 1 + int(body[at])
	at += 2 + int(binary.BigEndian.Uint16(body[at:]))
	at += 1 + int(body[at])
	binary.BigEndian.PutUint16(body[at:], binary.BigEndian.Uint16(body[at:])+uint16(len(more)))
	body = append(body, more...)
	body[2], body[3] = byte((len(body)-4)>>8), byte(len(body)-4)
	binary.BigEndian.PutUint16(head[3:], uint16(len(body)))
	return append(head, body...)
}

// Early data (RFC 8446 section 4.2.10) could be replayed: it is refused, whether
// it is announced or just sent.
func TestEarlyDataIsRefused(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	request := "CONNECT " + to.Addr() + " HTTP/1.1\r\n\r\n"
	record := append([]byte{23, 3, 3, 0, byte(len(request))}, request...)
	unexpected := []byte{21, 3, 3, 0, 2, 2, 110} // the alert unsupported_extension
	for name, c := range map[string]struct {
		first []byte
		ends  func(answer []byte) bool
	}{
		"announced": {clientHello(t, []byte{0, 42, 0, 0}), func(a []byte) bool { return bytes.Equal(a, unexpected) }},
		"just sent": {clientHello(t, nil), func(a []byte) bool { return !bytes.Contains(a, []byte("HTTP")) && a[0] == 22 }},
	} {
		conn := h.dialTCP()
		conn.Write(append(c.first, record...))
		all, err := io.ReadAll(conn)
		if isTimeout(err) || len(all) == 0 || !c.ends(all) {
			t.Errorf("%s: read %d bytes %.20x, %v", name, len(all), all, err)
		}
		conn.Close()
	}
	// The same with an extension that nobody knows is answered, so that it was the
	// early data that was refused.
	conn := h.dialTCP()
	conn.Write(clientHello(t, []byte{0x0a, 0x0a, 0, 0}))
	head := make([]byte, 6)
	if _, err := io.ReadFull(conn, head); err != nil || head[0] != 22 || head[5] != 2 {
		t.Errorf("without early data: %x, %v, want a ServerHello", head, err)
	}
	conn.Close()
	if to.Accepted() != 0 {
		t.Error("early data reached a target")
	}
	othersServed(t, h)
}

// A second handshake on a connection does not exist in TLS 1.3 (RFC 8446 section
// 4.1.2): whoever asks for it is cut off. So is who renews keys without end.
func TestRenegotiationIsRefused(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	clientHello := clientHello(t, nil)[5:]
	const served = "one key update and a request"
	for name, messages := range map[string][][]byte{
		"a second ClientHello": {clientHello},
		"keys without end":     keyUpdates(100),
		"a HelloRequest":       {{0, 0, 0, 0}},
		served:                 append(keyUpdates(1), []byte("GET / HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")),
	} {
		raw := h.dialTCP()
		keys := &strings.Builder{}
		cfg := anyHub(nil, trust.ALPNJoin)
		cfg.KeyLogWriter = keys
		conn := tls.Client(raw, cfg)
		if err := conn.HandshakeContext(runtest.Within(t)); err != nil {
			t.Fatal(err)
		}
		if id := conn.ConnectionState().CipherSuite; id != tls.TLS_AES_128_GCM_SHA256 {
			t.Skipf("the suite is %s: this test speaks one only", tls.CipherSuiteName(id))
		}
		w := newRecords(t, keys.String())
		for _, m := range messages {
			raw.Write(w.seal(t, m))
		}
		answer, err := io.ReadAll(conn)
		if isTimeout(err) || bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) != (name == served) {
			t.Errorf("%s: read %q, %v", name, answer, err)
		}
		raw.Close()
	}
	othersServed(t, h)
}

func keyUpdates(n int) (out [][]byte) {
	for range n {
		out = append(out, []byte{24, 0, 0, 1, 1}) // update_requested
	}
	return out
}

// records seals handshake messages as the client's own library would not.
type records struct {
	secret []byte
	seq    uint64
}

func newRecords(t *testing.T, log string) *records {
	t.Helper()
	for line := range strings.Lines(log) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			return &records{secret: secret}
		}
	}
	t.Fatal("no secret of the client")
	return nil
}

// expand is HKDF-Expand-Label (RFC 8446 section 7.1).
func (r *records) expand(t *testing.T, label string, n int) []byte {
	t.Helper()
	info := append([]byte{0, byte(n), byte(len("tls13 " + label))}, "tls13 "+label...)
	out, err := hkdf.Expand(sha256.New, r.secret, string(append(info, 0)), n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *records) seal(t *testing.T, message []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(r.expand(t, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := r.expand(t, "iv", 12)
	for i := range 8 {
		nonce[11-i] ^= byte(r.seq >> (8 * i))
	}
	n := len(message) + 1 + aead.Overhead()
	head := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	kind := byte(22) // handshake
	if message[0] == 'G' {
		kind = 23 // application data
	}
	out := aead.Seal(bytes.Clone(head), nonce, append(bytes.Clone(message), kind), head)
	r.seq++
	if message[0] == 24 { // the next record has the next keys
		r.secret, r.seq = r.expand(t, "traffic upd", 32), 0
	}
	return out
}
