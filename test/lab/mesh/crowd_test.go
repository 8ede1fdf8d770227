// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	"github.com/tombolo-io/tombolo/test/lab"
)

// crowd are members of the cluster that are announced to the discovery service as
// nodes announce themselves, with keys of their own, and of which none runs.
type crowd struct {
	r       *rig
	keys    seal.Keys
	prefix  netip.Prefix // of overlay addresses
	conns   []*grpc.ClientConn
	members []*absent

	mu   sync.Mutex
	seen map[seal.MemberID]uint64 // versions that the service tells of; 0: a removal
	news chan struct{}
}

// absent is one of them.
type absent struct {
	number  int
	key     seal.MemberKey
	version uint64
	says    *discovery.Member
}

// crowdConnections and crowdCalls bound what is done at once.
const crowdConnections, crowdCalls = 4, 16

// The networks in which the crowd is said to be.
func crowdNetworks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("172.16.0.0/16")}
}

// newCrowd makes the service take so many, and watches it.
func (r *rig) newCrowd(most int) *crowd {
	r.t.Helper()
	text, err := os.ReadFile(r.secret)
	if err != nil {
		r.t.Fatal(err)
	}
	secret, err := seal.ParseSecret(string(text))
	if err != nil {
		r.t.Fatal(err)
	}
	c := &crowd{r: r, keys: secret.Keys(), seen: map[seal.MemberID]uint64{}, news: make(chan struct{}, 1)}
	c.prefix = member.Overlay6(c.keys.Cluster().String())
	r.admit(most)
	for range crowdConnections {
		conn, err := grpc.NewClient("passthrough:///"+lab.OtherAddr+":443",
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})), // nobody else is there
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return r.discovery.host.DialContext(ctx, "tcp", address)
			}))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { conn.Close() })
		c.conns = append(c.conns, conn)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- c.watch(ctx) }()
	r.t.Cleanup(func() { cancel(); <-watched })
	return c
}

// admit raises the bounds of the discovery service, of members and of calls from one
// address: nodes come from many.
func (r *rig) admit(members int) {
	r.t.Helper()
	path := r.discovery.args[len(r.discovery.args)-1]
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	more := fmt.Sprintf("limits: {members: %d}\nrates: {perSecond: 1000000, burst: 1000000}\n", max(members+24, limit.DiscoveryMembers))
	r.write("discovery.yaml", string(text)+more)
	if err := r.discovery.process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
}

// attend proves who comes, and gives the stream.
func (c *crowd) attend(ctx context.Context, conn *grpc.ClientConn, as *seal.MemberKey) (grpc.BidiStreamingClient[discovery.FromMember, discovery.FromService], error) {
	stream, err := discovery.NewDiscoveryClient(conn).Attend(ctx)
	if err != nil {
		return nil, err
	}
	f, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	p, err := seal.Prove(c.keys, as, f.GetChallenge().GetNonce(), "lab")
	if err != nil {
		return nil, err
	}
	p.Version = 1
	return stream, stream.Send(&discovery.FromMember{Frame: &discovery.FromMember_Proof{Proof: p}})
}

// watch notes what the service tells of until ctx ends.
func (c *crowd) watch(ctx context.Context) error {
	stream, err := c.attend(ctx, c.conns[0], nil)
	if err != nil {
		return err
	}
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		for _, e := range append(f.GetSnapshot().GetEntries(), f.GetChange().GetEntries()...) {
			c.seen[seal.MemberOf(e.GetMember())] = e.GetVersion()
		}
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

// awaitSeen waits until the service tells of the version of each.
func (c *crowd) awaitSeen(of []*absent) error {
	late := time.After(patience)
	for {
		missing := 0
		c.mu.Lock()
		for _, m := range of {
			if c.seen[m.key.ID()] < m.version {
				missing++
			}
		}
		c.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-c.news:
		case <-late:
			return fmt.Errorf("the service does not tell of %d of %d members", missing, len(of))
		}
	}
}

// come announces so many more.
func (c *crowd) come(n int) {
	c.r.t.Helper()
	from := len(c.members)
	c.members = append(c.members, make([]*absent, n)...)
	fresh := c.members[from:]
	err := inParallel(n, func(i int) (err error) {
		if fresh[i], err = c.absent(from + i); err == nil {
			err = c.say(fresh[i])
		}
		return err
	})
	if err = errors.Join(err, c.awaitSeen(fresh)); err != nil {
		c.r.t.Fatal(err)
	}
}

// absent makes a member. Each fourth speaks no probes, and each third has no relay.
func (c *crowd) absent(number int) (*absent, error) {
	key, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := seal.NewWireGuardPrivate([32]byte(newKey(c.r.t).Bytes()))
	if err != nil {
		return nil, err
	}
	a := &absent{number: number, key: key}
	high, low := byte(2*number>>8), byte(2*number) // no neighbours of another one's, or the kernel would join them
	six := c.prefix.Addr().As16()
	six[13], six[14], six[15] = 1, high, low
	m := member.Facts{
		Node: a.node(), Key: private.Public(), Mesh: limit.MeshVersion,
		Overlay6: netip.AddrFrom16(six), Overlay4: netip.AddrFrom4([4]byte{100, 113, high, low}),
		Ranges: a.ranges(), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, high, low})},
		Endpoints: []member.Endpoint{
			{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, high, low}), 51820), Kind: member.KindOwn},
			{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, high, low}), 51820), Kind: member.KindMapped},
		},
	}
	if number%4 == 3 {
		m.Mesh = 0
	} else if number%3 > 0 {
		m.RelayCluster, m.Relays = cluster, []string{c.r.hubName()}
	}
	a.says = seal.Message(m)
	a.says.WireguardProof, err = c.keys.ProveWireGuard(rand.Reader, private, key.ID())
	return a, err
}

func (a *absent) node() string { return fmt.Sprintf("absent-%05d", a.number) }

// ranges are those behind it.
func (a *absent) ranges() []netip.Prefix {
	n := 2 * a.number
	six := netip.MustParseAddr("fd99::").As16()
	six[4], six[5], six[6], six[7] = 0, byte(n>>16), byte(n>>8), byte(n)
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + n>>8), byte(n), 0}), 24),
		netip.PrefixFrom(netip.AddrFrom16(six), 64),
	}
}

// say puts a new entry of a member, as a renewal of its lease does.
func (c *crowd) say(a *absent) error {
	a.version = seal.NextVersion(a.version, time.Now())
	e, err := c.keys.Seal(rand.Reader, a.key, seal.Content{Version: a.version, TTL: limit.DiscoveryTTL, Member: a.says})
	if err != nil {
		return err
	}
	return c.put(a, e)
}

// put brings an entry, and goes as soon as the service has it.
func (c *crowd) put(a *absent, e *discovery.Entry) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := c.attend(ctx, c.conns[1+a.number%(crowdConnections-1)], &a.key)
	if err != nil {
		return err
	}
	if err := stream.Send(&discovery.FromMember{Frame: &discovery.FromMember_Put{Put: &discovery.Put{Entry: e}}}); err != nil {
		return err
	}
	for {
		f, err := stream.Recv()
		switch {
		case err != nil:
			return err
		case f.GetRefusal() != nil:
			return fmt.Errorf("%s is refused: %s: %s", a.node(), f.GetRefusal().GetWhat(), f.GetRefusal().GetWhy())
		case f.GetAck().GetVersion() == e.GetVersion():
			return nil
		}
	}
}

// go away with a farewell, the last first.
func (c *crowd) leave(n int) {
	c.r.t.Helper()
	left := c.members[len(c.members)-n:]
	c.members = c.members[:len(c.members)-n]
	err := inParallel(n, func(i int) error {
		left[i].version = seal.NextVersion(left[i].version, time.Now())
		return c.put(left[i], c.keys.Remove(left[i].key, left[i].version, limit.DiscoveryTTL))
	})
	if err = errors.Join(err, c.awaitSeen(left)); err != nil {
		c.r.t.Fatal(err)
	}
}

// renewing renews the leases of all, one after the other, as often as nodes do: each in a third
// of its lease. It goes on until it is stopped, and tells how many there were.
func (c *crowd) renewing() (stop func() int) {
	every := time.NewTicker(limit.DiscoveryTTL / 3 / time.Duration(len(c.members)))
	done, ended := make(chan struct{}), make(chan struct{})
	var renewed atomic.Int64
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-every.C:
			case <-done:
				return
			}
			if err := c.say(c.members[i%len(c.members)]); err != nil {
				c.r.t.Error(err)
				return
			}
			renewed.Add(1)
		}
	}()
	return func() int {
		every.Stop()
		close(done)
		<-ended
		return int(renewed.Load())
	}
}

// hubName is what the hub's certificate calls it: its machine, which is this one.
func (r *rig) hubName() string {
	r.t.Helper()
	name, err := os.Hostname()
	if err != nil {
		r.t.Fatal(err)
	}
	return name
}

// inParallel does something n times, some of them at once.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, crowdCalls)
	for worker := range crowdCalls {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[worker] == nil; i = int(next.Add(1)) - 1 {
				errs[worker] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
