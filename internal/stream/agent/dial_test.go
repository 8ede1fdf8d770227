// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func tcp(address string) wire.Dial { return wire.Dial{Network: "tcp", Address: address} }

func allow(t *testing.T, rules ...string) *policy.Policy {
	t.Helper()
	p, err := CompileAllow(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// names answers each look-up of a name with the next of its answers.
type names struct {
	mu      sync.Mutex
	answers map[string][][]string
	asked   int
}

func (n *names) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	all := n.answers[host]
	if network != "ip" || len(all) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	n.answers[host] = all[1:]
	var out []netip.Addr
	for _, a := range all[0] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// network is a fake of the machine's connects: each address has its behaviour.
type network struct {
	mu     sync.Mutex
	dialed []string
	at     map[string]func(context.Context) (net.Conn, error)
	open   int // connections that nobody has closed
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	do := n.at[address]
	n.mu.Unlock()
	if do == nil {
		return nil, refused()
	}
	conn, err := do(ctx)
	if err == nil {
		n.mu.Lock()
		n.open++
		n.mu.Unlock()
		conn = &fakeConn{Conn: conn, n: n, at: address}
	}
	return conn, err
}

type fakeConn struct {
	net.Conn
	n  *network
	at string
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.at))
}

func (c *fakeConn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.open--
	return nil
}

func refused() error { return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} }

func connects(after time.Duration) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		select {
		case <-time.After(after):
			return pipeEnd(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connectsAnyway connects although it was told to stop: the packet was on its way.
func connectsAnyway(after time.Duration) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		time.Sleep(after)
		return pipeEnd(), nil
	}
}

func pipeEnd() net.Conn { a, _ := net.Pipe(); return a }

func fails(after time.Duration, err error) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		select {
		case <-time.After(after):
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func hangs(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
}

func fakeDialer(n *network, answers ...[]string) (*targetDialer, *names) {
	r := &names{answers: map[string][][]string{"db.example": answers}}
	return &targetDialer{resolver: r, dial: n.dial, own: func() []policy.Listener { return nil }}, r
}

func TestOnlyAddressesThatWereCheckedAreDialled(t *testing.T) {
	for name, c := range map[string]struct {
		answer []string
		rules  []string
		want   []string // what is dialled, all of which refuse
		code   fault.Code
	}{
		"those that are allowed, and no other": {[]string{"10.0.0.1", "192.168.0.1", "10.0.0.2"}, []string{"10.0.0.0/8"}, []string{"10.0.0.1:80", "10.0.0.2:80"}, fault.CodeDialRefused},
		"IPv6 and IPv4 in turn":                {[]string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, []string{"10.0.0.0/8", "fd00::/8"}, []string{"[fd00::1]:80", "10.0.0.1:80", "[fd00::2]:80", "10.0.0.2:80"}, fault.CodeDialRefused},
		"none, if none is allowed":             {[]string{"192.168.0.1"}, []string{"10.0.0.0/8"}, nil, fault.CodePolicyDenied},
		"no metadata behind a name":            {[]string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"}, []string{"db.example", "0.0.0.0/0", "::/0"}, nil, fault.CodePolicyDenied},
		"no loopback behind a name":            {[]string{"127.0.0.1", "::1"}, []string{"db.example", "*.example"}, nil, fault.CodePolicyDenied},
		"the good one beside a bad one":        {[]string{"169.254.169.254", "10.0.0.1"}, []string{"db.example"}, []string{"10.0.0.1:80"}, fault.CodeDialRefused},
		"a mapped address as IPv4":             {[]string{"::ffff:10.0.0.1"}, []string{"10.0.0.0/8"}, []string{"10.0.0.1:80"}, fault.CodeDialRefused},
		"no other port":                        {[]string{"10.0.0.1"}, []string{"10.0.0.0/8:443"}, nil, fault.CodePolicyDenied},
		"not more than a few":                  {slices.Repeat([]string{"10.0.0.1"}, 50), []string{"10.0.0.0/8"}, slices.Repeat([]string{"10.0.0.1:80"}, limit.ResolvedAddresses), fault.CodeDialRefused},
		"nothing without rules":                {[]string{"10.0.0.1"}, nil, nil, fault.CodePolicyDenied},
		"nothing if there is no address":       {nil, []string{"db.example"}, nil, fault.CodeDialDNS},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				d, r := fakeDialer(n, c.answer)
				_, _, err := d.Dial(t.Context(), allow(t, c.rules...), tcp("db.example:80"), nil)
				if f := fault.From(err); f == nil || f.Code != c.code || f.Why == "" {
					t.Errorf("%v, want %s", err, c.code)
				}
				if !slices.Equal(n.dialed, c.want) || r.asked != 1 {
					t.Errorf("dialled %q after %d look-ups, want %q after one", n.dialed, r.asked, c.want)
				}
			})
		})
	}
}

// TestANameThatChangesItsMind is DNS rebinding: the first answer is good, any
// later one is not. What was checked is dialled, and nobody is asked again.
func TestANameThatChangesItsMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{at: map[string]func(context.Context) (net.Conn, error){"10.0.0.1:80": connects(0)}}
		d, r := fakeDialer(n, []string{"10.0.0.1"}, []string{"169.254.169.254"})
		_, at, err := d.Dial(t.Context(), allow(t, "10.0.0.0/8"), tcp("DB.example.:80"), nil)
		if err != nil || at != "10.0.0.1:80" || r.asked != 1 || !slices.Equal(n.dialed, []string{"10.0.0.1:80"}) {
			t.Errorf("%q, %v, %d look-ups, dialled %q", at, err, r.asked, n.dialed)
		}
	})
}

func TestHappyEyeballs(t *testing.T) {
	const stagger = limit.HappyEyeballs
	type behaviour = map[string]func(context.Context) (net.Conn, error)
	for name, c := range map[string]struct {
		at    behaviour
		want  string // the address that wins; empty: none
		after time.Duration
		code  fault.Code
	}{
		"the first that connects wins":              {behaviour{"[fd00::1]:80": connects(0), "10.0.0.1:80": connects(0)}, "[fd00::1]:80", 0, ""},
		"a first that hangs gives way":              {behaviour{"[fd00::1]:80": hangs, "10.0.0.1:80": connects(time.Second)}, "10.0.0.1:80", stagger + time.Second, ""},
		"a first that is refused gives way at once": {behaviour{"10.0.0.1:80": connects(0)}, "10.0.0.1:80", 0, ""},
		"a slow first may still win":                {behaviour{"[fd00::1]:80": connects(2 * stagger), "10.0.0.1:80": connects(time.Minute)}, "[fd00::1]:80", 2 * stagger, ""},
		"one that connects too late is closed":      {behaviour{"[fd00::1]:80": connectsAnyway(time.Second), "10.0.0.1:80": connects(0)}, "10.0.0.1:80", time.Second, ""},
		"the third wins when the others hang":       {behaviour{"[fd00::1]:80": hangs, "10.0.0.1:80": hangs, "10.0.0.2:80": connects(0)}, "10.0.0.2:80", 2 * stagger, ""},
		"all refuse":                                {nil, "[fd00::1]:80", 0, fault.CodeDialRefused},
		"all are out of reach":                      {behaviour{"[fd00::1]:80": fails(0, syscall.ENETUNREACH), "10.0.0.1:80": fails(0, syscall.EHOSTUNREACH), "10.0.0.2:80": fails(0, syscall.ENETUNREACH)}, "[fd00::1]:80", 0, fault.CodeDialUnreachable},
		"one is out of reach and the others refuse": {behaviour{"[fd00::1]:80": fails(0, syscall.ENETUNREACH)}, "[fd00::1]:80", 0, fault.CodeDialRefused},
		"all hang until the deadline":               {behaviour{"[fd00::1]:80": hangs, "10.0.0.1:80": hangs, "10.0.0.2:80": hangs}, "[fd00::1]:80", time.Minute, fault.CodeDialTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{at: c.at}
				d, _ := fakeDialer(n, []string{"10.0.0.1", "fd00::1", "10.0.0.2"})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				conn, at, err := d.Dial(ctx, allow(t, "10.0.0.0/8", "fd00::/8"), tcp("db.example:80"), nil)
				if at != c.want || time.Since(begin) != c.after {
					t.Errorf("%q after %v, %v; want %q after %v", at, time.Since(begin), err, c.want, c.after)
				}
				open := 0
				if c.code == "" {
					open = 1
				}
				if n.open != open || (conn != nil) != (open == 1) {
					t.Errorf("%d connections are open", n.open)
				}
				if c.code != "" && !fault.Has(err, c.code) {
					t.Errorf("%v, want %s", err, c.code)
				}
			})
		})
	}
}

func TestACallerWhoGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		resolver resolver
		end      func(context.Context) (context.Context, context.CancelFunc)
		code     fault.Code
	}{
		"while the name resolves":         {slow{}, context.WithCancel, fault.CodeDialCanceled},
		"while the target is dialled":     {&names{answers: map[string][][]string{"db.example": {{"10.0.0.1", "10.0.0.2"}}}}, context.WithCancel, fault.CodeDialCanceled},
		"whose name resolves too slowly":  {slow{}, inAMinute, fault.CodeDialTimeout},
		"whose target answers too slowly": {&names{answers: map[string][][]string{"db.example": {{"10.0.0.1"}}}}, inAMinute, fault.CodeDialTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := c.end(t.Context())
				defer cancel()
				if c.code == fault.CodeDialCanceled {
					time.AfterFunc(time.Second, cancel)
				}
				n := &network{at: map[string]func(context.Context) (net.Conn, error){"10.0.0.1:80": hangs, "10.0.0.2:80": hangs}}
				d := &targetDialer{resolver: c.resolver, dial: n.dial, own: func() []policy.Listener { return nil }}
				if _, _, err := d.Dial(ctx, allow(t, "10.0.0.0/8"), tcp("db.example:80"), nil); !fault.Has(err, c.code) {
					t.Errorf("%v, want %s", err, c.code)
				}
			})
		})
	}
}

// TestTheResolverIsFirst: it sees that the deadline has passed before the context does.
func TestTheResolverIsFirst(t *testing.T) {
	d := &targetDialer{resolver: tardy{}, own: func() []policy.Listener { return nil }}
	for late, want := range map[bool]fault.Code{true: fault.CodeDialTimeout, false: fault.CodeDialDNS} {
		ctx := deadline{context.WithoutCancel(t.Context()), time.Now().Add(-time.Second)}
		if !late {
			ctx.at = time.Now().Add(time.Hour)
		}
		if _, _, err := d.Dial(ctx, allow(t, "10.0.0.0/8"), tcp("db.example:80"), nil); !fault.Has(err, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// tardy is a resolver whose servers have not answered in time.
type tardy struct{}

func (tardy) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}
}

// deadline is a context that never learns that it has passed.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func inAMinute(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Minute)
}

type slow struct{}

func (slow) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: true}
}

func TestDestinationsThatAreNotDialled(t *testing.T) {
	d, r := fakeDialer(&network{})
	d.own = func() []policy.Listener {
		return []policy.Listener{{At: netip.MustParseAddrPort("0.0.0.0:8445"), Of: policy.ListenerOfAgent}}
	}
	for name, c := range map[string]struct {
		network, address string
		code             fault.Code
	}{
		"another network":              {"sctp", "10.0.0.1:80", fault.CodePolicyDenied},
		"no network":                   {"", "10.0.0.1:80", fault.CodePolicyDenied},
		"no port":                      {"tcp", "10.0.0.1", fault.CodeRequest},
		"an odd form of loopback":      {"tcp", "0x7f.1:80", fault.CodeRequest},
		"nothing":                      {"tcp", "", fault.CodeRequest},
		"loopback":                     {"tcp", "[::1]:80", fault.CodePolicyDenied},
		"the agent's own listener":     {"tcp", "127.0.0.1:8445", fault.CodePolicyDenied},
		"the same on another loopback": {"tcp", "127.9.9.9:8445", fault.CodePolicyDenied},
		"an unknown name":              {"tcp", "unknown.example:80", fault.CodeDialDNS},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := d.Dial(t.Context(), allow(t, "0.0.0.0/0", "::/0", "127.0.0.0/8"), wire.Dial{Network: c.network, Address: c.address}, nil); !fault.Has(err, c.code) {
				t.Errorf("%v, want %s", err, c.code)
			}
		})
	}
	if r.asked != 1 {
		t.Errorf("%d look-ups, want one: an address is not looked up", r.asked)
	}
}

// TestRealSockets dials loopback, which the policy names, with the kernel's answers.
func TestRealSockets(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	r := &names{answers: map[string][][]string{"db.example": {{"127.0.0.1"}}}}
	d := &targetDialer{resolver: r, dial: sparing(1 << 20).DialContext, own: func() []policy.Listener { return nil }}
	p := allow(t, "127.0.0.0/8")

	_, port, _ := net.SplitHostPort(ln.Addr().String())
	conn, at, err := d.Dial(t.Context(), p, tcp("db.example:"+port), nil)
	if err != nil || at != ln.Addr().String() {
		t.Fatalf("%q, %v", at, err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(far, "hello")
	far.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	conn.Close()

	_, _, err = d.Dial(t.Context(), p, tcp(closed.Addr().String()), nil)
	if f := fault.From(err); f == nil || f.Code != fault.CodeDialRefused || !strings.Contains(f.Error(), closed.Addr().String()) || f.Next == "" {
		t.Errorf("a port without a listener: %v", err)
	}
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, _, err := d.Dial(expired, p, tcp(ln.Addr().String()), nil); !fault.Has(err, fault.CodeDialTimeout) {
		t.Errorf("a deadline that has passed: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := d.Dial(gone, p, tcp(ln.Addr().String()), nil); !fault.Has(err, fault.CodeDialCanceled) {
		t.Errorf("a caller who has gone: %v", err)
	}
	for name, c := range map[string]struct {
		err  error
		want fault.Code
	}{
		"reset at once":  {syscall.ECONNRESET, fault.CodeDialRefused},
		"no route":       {syscall.EHOSTUNREACH, fault.CodeDialUnreachable},
		"no network":     {syscall.ENETUNREACH, fault.CodeDialUnreachable},
		"a firewall":     {syscall.EPERM, fault.CodeDialUnreachable},
		"no answer":      {syscall.ETIMEDOUT, fault.CodeDialTimeout},
		"something else": {errors.New("odd"), fault.CodeDialUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := policy.ParseTarget("10.0.0.1:80")
			if err != nil {
				t.Fatal(err)
			}
			got := fault.From(dialFault(target, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}, &net.OpError{Op: "dial", Err: c.err}))
			if got.Code != c.want || got.Why == "" {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}
