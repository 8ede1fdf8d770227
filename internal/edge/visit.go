// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
	"github.com/tombolo-io/tombolo/internal/edge/clienthello"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// visit is one connection of a client on its way in:
//
//	source (PROXY header) ──► name (ClientHello or CONNECT) ──► tenant ──► policy ──► limits ──► upstream ──► tunnel
//	       └─ refused: told apart by fault code, recorded, answered in the client's protocol
type visit struct {
	of      *Edge
	at      Listener
	conn    *net.TCPConn
	begun   time.Time
	client  netip.AddrPort // whom the policy sees: behind a load balancer what that says
	local   netip.AddrPort
	counted netip.Prefix // the source whose place it has
	entered bool         // it has a place of its cluster
	carried bool         // it became a tunnel
	head    []byte       // what was read and is not used up

	name  string // what the client asks for: a server name, or a destination
	hello clienthello.Hello
	route tenant.Route
	dest  connecthead.Destination
	rule  authz.Ruling
	up    string // the upstream
}

// arrive finds out where the client is and what it wants. Its errors are faults.
func (v *visit) arrive() error {
	v.conn.SetReadDeadline(time.Now().Add(headTime))
	defer v.conn.SetReadDeadline(time.Time{})
	if err := v.source(); err != nil {
		return err
	}
	if v.at.Connect {
		return v.connect()
	}
	return v.tls()
}

// source takes the client's address from a load balancer that is trusted, and only from one.
func (v *visit) source() error {
	peer := v.client
	if !v.at.Trusted.Has(peer.Addr()) {
		return nil
	}
	for {
		client, size, need, err := proxyheader.Read(v.head, peer)
		if err != nil {
			return err
		}
		if need == 0 {
			v.client, v.head = client, v.head[size:]
			return v.count()
		}
		if err := v.more(need); err != nil {
			return err
		}
	}
}

// count takes a place of the client's source.
func (v *visit) count() error {
	source := sourceOf(v.client.Addr())
	err := v.of.counts.come(source, v.of.settings.Load().Source)
	if err == nil {
		v.counted = source
	}
	return err
}

func (v *visit) uncount() {
	if v.counted.IsValid() {
		v.of.counts.gone(v.counted)
	}
}

// tls reads a ClientHello and finds the tenant that it names.
func (v *visit) tls() (err error) {
	for {
		if proxyheader.Begins(v.head) {
			return proxyheader.Refuse("it comes from an address that is no load balancer")
		}
		var need int
		if v.hello, need, err = clienthello.Parse(v.head); err != nil {
			return err
		}
		if need == 0 {
			break
		}
		if err := v.more(need); err != nil {
			return err
		}
	}
	v.name = v.hello.Name
	var ok bool
	if v.route, ok = v.of.tenants.ByName(v.name, v.hello.Protocols); ok {
		return nil
	}
	if v.name == "" {
		return fault.New(fault.CodeNameMissing, "the client names no server").
			Hint("connect by the cluster's name, not by address")
	}
	f := fault.New(fault.CodeNameUnknown, "no tenant has this name")
	if v.hello.Encrypted {
		f = f.Whyf("the client encrypts the name that it means (ECH), and only the outer one can be read")
	}
	return f
}

// redirect is the answer to what is no CONNECT with a destination: the TLS port.
type redirect struct{ to string }

func (r redirect) Error() string { return "redirected to " + r.to }

// connect reads the head of a request and finds the tenant that its header names.
func (v *visit) connect() error {
	var h connecthead.Head
	for {
		if proxyheader.Begins(v.head) {
			return proxyheader.Refuse("it comes from an address that is no load balancer")
		}
		var done bool
		var err error
		if h, done, err = connecthead.Parse(v.head); err != nil {
			return err
		}
		if done {
			break
		}
		if err := v.more(1); err != nil {
			return err
		}
	}
	v.name = h.Value
	if h.Header == "" || !h.Connect() {
		return redirectOf(h)
	}
	if v.head = v.head[h.Size:]; len(v.head) > 0 {
		return fault.New(fault.CodeEarlyData, "bytes came before the answer to the CONNECT").
			Hint("wait for the 200 before sending")
	}
	var err error
	if v.dest, err = connecthead.ParseDestination(h.Value); err != nil {
		return fault.New(fault.CodeNameUnknown, "the destination is none of the known forms")
	}
	var ok bool
	if v.route, ok = v.of.tenants.ByDestination(v.dest); !ok {
		return fault.New(fault.CodeNameUnknown, "no tenant has this destination")
	}
	return nil
}

// redirectOf leads to the host that was asked, and to no other.
func redirectOf(h connecthead.Head) error {
	if h.Host == "" {
		return fault.New(fault.CodeRequest, "the request is malformed").Whyf("it names no host")
	}
	host := h.Host
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	return redirect{"https://" + host + cmp.Or(h.Path, "/")}
}

// more reads at least n bytes more of the head.
func (v *visit) more(n int) error {
	if cap(v.head)-len(v.head) < n {
		// Doubled, since the end of a CONNECT is not known: else each read would take n bytes, and copy all before.
		twice := min(2*len(v.head), connecthead.Most)
		v.head = append(make([]byte, 0, max(headFirst, twice, len(v.head)+n)), v.head...)
	}
	got, err := io.ReadAtLeast(v.conn, v.head[len(v.head):cap(v.head)], n)
	v.head = v.head[:len(v.head)+got]
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.CodeRequest, "the client did not say what it wants").
			Whyf("nothing whole came within %v", headTime)
	case errors.Is(err, net.ErrClosed) && !v.of.draining.Load():
		return fault.New(fault.CodeLimit, "the client gave its place to a newer one").
			Whyf("it did not say what it wants, and the edge holds at most %d such connections of a port", mostSilent())
	case len(v.head) == 0:
		return fault.New(fault.CodeDialCanceled, "the client sent nothing")
	}
	return fault.New(fault.CodeRequest, "the client ended before it said what it wants")
}

// request is what the policy is asked.
func (v *visit) request() policy.Request {
	name := v.name
	if v.at.Connect {
		name = ""
	}
	return policy.Request{
		Cluster: v.route.Tenant.Name, Flow: v.route.Way.Flow, Source: v.client.Addr(), Name: name,
		Port: v.local.Port(), Protected: v.route.Tenant.Protected,
	}
}

// upstreams are those of the way, or the service that the destination stands for.
func (v *visit) upstreams() []tenant.Upstream {
	if len(v.route.Way.Upstreams) > 0 {
		return v.route.Way.Upstreams
	}
	return []tenant.Upstream{{Address: v.dest.Service()}}
}

// judge asks the policy.
func (v *visit) judge() error {
	if v.rule = v.of.judge(v.request()); !v.rule.Allow {
		return denied(v.rule)
	}
	return nil
}

// enter dials, and gives the connection to the upstream.
func (v *visit) enter(ctx context.Context) (net.Conn, error) {
	if err := v.of.audit.Admit(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, v.of.settings.Load().DialTimeout)
	defer cancel()
	up, address, err := v.of.upstreams.dial(ctx, v.upstreams())
	if v.up = address; err != nil {
		return nil, err
	}
	if err := v.greet(up); err != nil {
		up.Close()
		return nil, err
	}
	return up, nil
}

// greet sends the upstream the client's address, if it wants that, and then what has been read.
func (v *visit) greet(up net.Conn) error {
	first := v.head
	if version := v.route.Way.Proxy; version != tenant.NoProxy {
		h, err := proxyheader.Format(byte(version), v.client, v.local)
		if err != nil {
			return fault.New(fault.CodeInternal, "the PROXY protocol header cannot be made").Because(err)
		}
		first = append(h, first...)
	}
	up.SetWriteDeadline(time.Now().Add(answerTime))
	defer up.SetWriteDeadline(time.Time{})
	if len(first) > 0 {
		if _, err := up.Write(first); err != nil {
			return fault.New(fault.CodeDialUnreachable, "the upstream takes no bytes").Because(err)
		}
	}
	v.head = nil
	return nil
}

// denied is the fault of a verdict. The client learns that it is denied, the records why.
func denied(r authz.Ruling) error {
	return fault.New(fault.CodePolicyDenied, "the policy of the edge refuses the connection").Whyf("%s", r.Why())
}

// record is what is known so far.
func (v *visit) record() audit.Record {
	r := audit.Record{
		Kind: audit.KindDial, Time: v.begun, At: audit.AtEdge, Frontend: v.at.Name, Source: v.client.String(),
		Asked: v.name, Resolved: v.up,
	}
	if v.route.Tenant != nil {
		r.Cluster, r.Egress = v.route.Tenant.Name, v.route.Way.Flow
	}
	if v.rule.Judged {
		r.Verdict, r.Rule, r.Policy = audit.Allow, v.rule.Rule, v.rule.Version.String()
		if !v.rule.Allow {
			r.Verdict = audit.Deny
		}
	}
	return r
}
