// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	"github.com/tombolo-io/tombolo/test/roles"
)

// opSeal has members of the native protocol seal what they will say, so that their
// cryptography is not what is measured: a time. opSigned has them say it: signedArgs,
// updatesResult. opVerify has all cores check their signatures and nothing else, for a
// time: updatesResult.
const (
	opSeal   = "seal"
	opSigned = "signed"
	opVerify = "verify"
)

// signedArgs are updatesArgs, by a call for each entry if it is an echo that takes them so.
type signedArgs struct {
	updatesArgs
	Calls bool `json:"calls"`
}

// Updates come over so many connections, of so many members each.
const (
	updateConnections = 16
	updateWorkers     = 8
)

// signedPool is how many entries a member has sealed before it begins. Who has said
// all is done.
func signedPool(d time.Duration) int { return 5 + int(50*d.Seconds()) }

// takeUpdates compares updates with the same messages to a server that drops them.
func takeUpdates(ctx context.Context, r *runner) error {
	members, err := roles.Spawn(r.lab.Here(), roleMembers, "members")
	if err != nil {
		return err
	}
	defer over(members)
	m, err := r.newMeeting(ctx, 0)
	defer m.over()
	if err != nil {
		return err
	}
	echo, at, err := r.startEcho(ctx, nil)
	defer over(echo)
	if err != nil {
		return err
	}
	m.members = members
	if err := r.takePlain(ctx, m, at); err != nil {
		return err
	}
	return r.takeSigned(ctx, m, at)
}

// updateArgs are a load on a service or on an echo.
func (r *runner) updateArgs(to string) updatesArgs {
	return updatesArgs{To: to, Connections: updateConnections, Workers: updateWorkers, For: r.meeting.updates}
}

// turns lets loads take turns, and gives the middle rate of each. The first turn is for
// those who are not warm yet.
func (r *runner) turns(loads ...func() (updatesResult, error)) ([]float64, error) {
	rates := make([][]float64, len(loads))
	for round := range r.meeting.rounds + 1 {
		for i, load := range loads {
			out, err := load()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				rates[i] = append(rates[i], out.rate())
			}
		}
	}
	var all []float64
	for _, of := range rates {
		all = append(all, middle(of))
	}
	return all, nil
}

// takePlain is of the older protocol.
func (r *runner) takePlain(ctx context.Context, m *meeting, echo string) error {
	load := func(to string) func() (updatesResult, error) {
		return func() (out updatesResult, err error) {
			return out, m.members.Call(ctx, opUpdates, r.meeting.updates, r.updateArgs(to), &out)
		}
	}
	rates, err := r.turns(load(m.args.Listen), load(echo))
	if err != nil {
		return err
	}
	if err := m.profile(ctx, "updates", func() error {
		_, err := load(m.args.Listen)()
		return err
	}); err != nil {
		return err
	}
	if err := r.results.Add(record{Measurement: "updates", Values: map[string]float64{"updates": rates[0], "echoes": rates[1]}}); err != nil {
		return err
	}
	return r.line(line{name: "updates a second, of an empty echo with the same messages", value: rates[0] / rates[1], target: leastUpdates, atLeast: true,
		note: fmt.Sprintf("%.0f and %.0f a second", rates[0], rates[1])})
}

// takeSigned is of the native protocol. An echo of the same frames on a stream, as a
// service has it, spends nothing on a call for each: what it does is told beside.
func (r *runner) takeSigned(ctx context.Context, m *meeting, echo string) error {
	seals := func() error { return m.members.Call(ctx, opSeal, r.meeting.updates, r.meeting.updates, nil) }
	says := func(to string, calls bool) (out updatesResult, err error) {
		return out, m.members.Call(ctx, opSigned, r.meeting.updates, signedArgs{r.updateArgs(to), calls}, &out)
	}
	load := func(to string, calls bool) func() (updatesResult, error) {
		return func() (updatesResult, error) {
			if err := seals(); err != nil {
				return updatesResult{}, err
			}
			return says(to, calls)
		}
	}
	verify := func() (out updatesResult, err error) {
		return out, m.members.Call(ctx, opVerify, r.meeting.updates, r.meeting.updates/5, &out)
	}
	rates, err := r.turns(load(m.args.Listen, false), load(echo, true), load(echo, false), verify)
	if err != nil {
		return err
	}
	if err := seals(); err != nil {
		return err
	}
	if err := m.profile(ctx, "signed", func() error {
		_, err := says(m.args.Listen, false)
		return err
	}); err != nil {
		return err
	}
	if err := r.results.Add(record{Measurement: "signed", Values: map[string]float64{"updates": rates[0], "echoes": rates[1], "streamed": rates[2], "verified": rates[3]}}); err != nil {
		return err
	}
	return r.line(line{name: "signed updates a second, of an empty echo with the same messages", value: rates[0] / rates[1], target: leastUpdates, atLeast: true,
		note: fmt.Sprintf("%.0f and %.0f a second; of an echo of the same frames on streams %.2f, %.0f a second, where checks of signatures, %.0f a second, allow %.2f",
			rates[0], rates[1], rates[0]/rates[2], rates[2], rates[3], atMost(rates[2], rates[3]))})
}

// atMost is the part of a rate that is left where each does a second thing, too, of
// which the same cores alone do so many: 1/(1/rate + 1/second) of the rate.
func atMost(rate, second float64) float64 { return second / (rate + second) }

// signer is one member on a stream of its own, in a cluster of its own.
type signer struct {
	keys    seal.Keys
	key     seal.MemberKey
	entries []*discovery.Entry
	stream  grpc.BidiStreamingClient[discovery.FromMember, discovery.FromService]
}

func newSigner(pool int) (*signer, error) {
	secret, err := seal.NewSecret(rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &signer{keys: secret.Keys()}
	if s.key, err = seal.NewMemberKey(rand.Reader); err != nil {
		return nil, err
	}
	// Text up to the size of what a Talos node says.
	content := &discovery.Member{Node: memberID(0), Software: string(make([]byte, memberData))}
	for i := range pool {
		e, err := s.keys.Seal(rand.Reader, s.key, seal.Content{Version: uint64(i + 1), TTL: limit.DiscoveryTTL, Member: content})
		if err != nil {
			return nil, err
		}
		s.entries = append(s.entries, e)
	}
	return s, nil
}

// enter proves who it is, and takes the snapshot.
func (s *signer) enter(ctx context.Context, conn *grpc.ClientConn) (err error) {
	if s.stream, err = discovery.NewDiscoveryClient(conn).Attend(ctx); err != nil {
		return err
	}
	for {
		f, err := s.stream.Recv()
		switch {
		case err != nil:
			return err
		case f.GetChallenge() != nil:
			p, err := seal.Prove(s.keys, &s.key, f.GetChallenge().GetNonce(), "scale")
			if err != nil {
				return err
			}
			p.Version = 1
			if err := s.stream.Send(&discovery.FromMember{Frame: &discovery.FromMember_Proof{Proof: p}}); err != nil {
				return err
			}
		case f.GetRefusal() != nil:
			return errors.New("refused: " + f.GetRefusal().GetWhat())
		case f.GetSnapshot().GetLast():
			return nil
		}
	}
}

// say says one thing after the other, each when the one before is acknowledged.
func (s *signer) say(until time.Time, count *atomic.Int64) error {
	for _, e := range s.entries {
		if !time.Now().Before(until) {
			return nil
		}
		if err := s.stream.Send(&discovery.FromMember{Frame: &discovery.FromMember_Put{Put: &discovery.Put{Entry: e}}}); err != nil {
			return err
		}
		for acked := false; !acked; {
			f, err := s.stream.Recv()
			if err != nil {
				return err
			}
			if f.GetRefusal() != nil {
				return errors.New("refused: " + f.GetRefusal().GetWhat() + ": " + f.GetRefusal().GetWhy())
			}
			acked = f.GetAck().GetVersion() == e.GetVersion()
		}
		count.Add(1)
	}
	return nil
}

// call says the same by a call for each.
func (s *signer) call(ctx context.Context, conn *grpc.ClientConn, until time.Time, count *atomic.Int64) error {
	for _, e := range s.entries {
		if !time.Now().Before(until) {
			return nil
		}
		var back discovery.FromService
		if err := conn.Invoke(ctx, echoMethod, &discovery.FromMember{Frame: &discovery.FromMember_Put{Put: &discovery.Put{Entry: e}}}, &back); err != nil {
			return err
		}
		if len(back.GetChange().GetEntries()) != 1 {
			return errors.New("the echo is another one")
		}
		count.Add(1)
	}
	return nil
}

// each does something for every signer at once.
func each(all []*signer, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(all))
	for i := range all {
		wg.Go(func() {
			if err := fn(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// seal makes members that have something to say.
func (r *membersRole) seal(d time.Duration) error {
	r.signers = make([]*signer, updateConnections*updateWorkers)
	return each(r.signers, func(i int) (err error) {
		r.signers[i], err = newSigner(signedPool(d))
		return err
	})
}

// verify has all cores check a signature over as much as an entry's is over.
func verify(d time.Duration) (updatesResult, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return updatesResult{}, err
	}
	text := make([]byte, 200)
	word := ed25519.Sign(private, text)
	var count, wrong atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range runtime.NumCPU() {
		wg.Go(func() {
			for time.Since(began) < d {
				if !ed25519.Verify(public, text, word) {
					wrong.Add(1)
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if wrong.Load() > 0 {
		return updatesResult{}, errors.New("a good signature is none")
	}
	return updatesResult{Updates: count.Load(), Wall: time.Since(began)}, nil
}

// signed lets the members that have sealed something say it without a pause.
func (r *membersRole) signed(args signedArgs) (out updatesResult, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conns := make([]*grpc.ClientConn, args.Connections)
	for i := range conns {
		if conns[i], err = call(args.To); err != nil {
			return out, err
		}
		defer conns[i].Close()
	}
	if !args.Calls {
		if err := each(r.signers, func(i int) error { return r.signers[i].enter(ctx, conns[i%len(conns)]) }); err != nil {
			return out, err
		}
	}
	var count atomic.Int64
	began := time.Now()
	err = each(r.signers, func(i int) error {
		if args.Calls {
			return r.signers[i].call(ctx, conns[i%len(conns)], began.Add(args.For), &count)
		}
		return r.signers[i].say(began.Add(args.For), &count)
	})
	return updatesResult{Updates: count.Load(), Wall: time.Since(began)}, err
}

// echoMethod answers an entry with itself, and with nothing else.
const echoMethod = "/tombolo.scale.Echo/Put"

var echoDesc = grpc.ServiceDesc{ServiceName: "tombolo.scale.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
	MethodName: "Put",
	Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var m discovery.FromMember
		if err := read(&m); err != nil {
			return nil, err
		}
		return &discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Entries: []*discovery.Entry{m.GetPut().GetEntry()}}}}, nil
	},
}}}

// Attend answers as a service does, and looks at nothing: each entry comes back
// with an acknowledgement.
func (r *echoRole) Attend(stream grpc.BidiStreamingServer[discovery.FromMember, discovery.FromService]) error {
	for _, f := range []*discovery.FromService{
		{Frame: &discovery.FromService_Challenge{Challenge: &discovery.Challenge{Nonce: make([]byte, seal.NonceSize), VersionMin: 1, VersionMax: 1}}},
		{Frame: &discovery.FromService_Welcome{Welcome: &discovery.Welcome{}}},
		{Frame: &discovery.FromService_Snapshot{Snapshot: &discovery.Snapshot{Last: true, Settled: true}}},
	} {
		if err := stream.Send(f); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		e := m.GetPut().GetEntry()
		if e == nil {
			continue
		}
		for _, f := range []*discovery.FromService{
			{Frame: &discovery.FromService_Ack{Ack: &discovery.Ack{Version: e.GetVersion()}}},
			{Frame: &discovery.FromService_Change{Change: &discovery.Change{Entries: []*discovery.Entry{e}}}},
		} {
			if err := stream.Send(f); err != nil {
				return err
			}
		}
	}
}
