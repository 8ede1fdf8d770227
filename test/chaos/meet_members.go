// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// answerTime bounds one word to the service: longer than it stands still, so that
// no word comes after the next one.
const answerTime = 30 * time.Second

// speaker says one member's words, in one of the two protocols. It is used by one
// goroutine. The number that it returns is there even if the call failed.
type speaker interface {
	put(ctx context.Context, fresh bool, ttl time.Duration) (seq uint64, err error)
	leave(ctx context.Context) (seq uint64, err error)
	close()
}

// dialService dials without a look at the certificate: who the services are is not
// in question here, and behind a balancer there are several.
func dialService(at string) (*grpc.ClientConn, error) {
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}
	return grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second}))
}

// olderSpeaker speaks the protocol of Talos nodes. What it says is its number: the
// service cannot know that it is not sealed.
type olderSpeaker struct {
	conn            *grpc.ClientConn
	cluster, member string
	seq             uint64
	left            bool // what comes next is new
}

func (o *olderSpeaker) put(ctx context.Context, fresh bool, ttl time.Duration) (uint64, error) {
	if fresh || o.left || o.seq == 0 {
		o.seq++
	}
	o.left = false
	_, err := sdr.NewClusterClient(o.conn).AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{
		ClusterId: o.cluster, AffiliateId: o.member, AffiliateData: strconv.AppendUint(nil, o.seq, 10),
		AffiliateEndpoints: [][]byte{[]byte("endpoint of " + o.member)}, Ttl: &sdr.Duration{Seconds: int64(ttl / time.Second)},
	})
	return o.seq, err
}

func (o *olderSpeaker) leave(ctx context.Context) (uint64, error) {
	o.seq++
	o.left = true
	_, err := sdr.NewClusterClient(o.conn).AffiliateDelete(ctx, &sdr.AffiliateDeleteRequest{ClusterId: o.cluster, AffiliateId: o.member})
	return o.seq, err
}

func (o *olderSpeaker) close() { o.conn.Close() }

// nativeSpeaker speaks ours. A word is an entry of a new version, always.
type nativeSpeaker struct {
	conn    *grpc.ClientConn
	keys    seal.Keys
	member  seal.MemberKey
	jump    *atomic.Int64 // of this member's clock
	version uint64
	stream  *nativeStream
}

type nativeStream struct {
	grpc.BidiStreamingClient[pb.FromMember, pb.FromService]
	cancel  context.CancelFunc
	answers chan *pb.FromService // closed at the end
	read    sync.WaitGroup
}

// attendService proves who calls: nil is one who only watches.
func attendService(ctx context.Context, conn *grpc.ClientConn, keys seal.Keys, member *seal.MemberKey) (grpc.BidiStreamingClient[pb.FromMember, pb.FromService], error) {
	s, err := pb.NewDiscoveryClient(conn).Attend(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	m, err := s.Recv()
	if err != nil {
		return nil, err
	}
	proof, err := seal.Prove(keys, member, m.GetChallenge().GetNonce(), "chaos")
	if err != nil {
		return nil, err
	}
	proof.Version = 1
	return s, s.Send(&pb.FromMember{Frame: &pb.FromMember_Proof{Proof: proof}})
}

func (n *nativeSpeaker) open(ctx context.Context) error {
	if n.stream != nil {
		return nil
	}
	// The stream outlives the word; the word's end ends it while it opens.
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	s, err := attendService(whole, n.conn, n.keys, &n.member)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return err
	}
	st := &nativeStream{BidiStreamingClient: s, cancel: cancel, answers: make(chan *pb.FromService)}
	st.read.Go(func() {
		defer close(st.answers)
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			if m.GetAck() == nil && m.GetRefusal() == nil {
				continue
			}
			select {
			case st.answers <- m:
			case <-whole.Done():
				return
			}
		}
	})
	n.stream = st
	return nil
}

func (n *nativeSpeaker) say(ctx context.Context, e *pb.Entry) error {
	if err := n.open(ctx); err != nil {
		return err
	}
	if err := n.stream.Send(&pb.FromMember{Frame: &pb.FromMember_Put{Put: &pb.Put{Entry: e}}}); err != nil {
		n.hangUp()
		return err
	}
	for {
		select {
		case m, ok := <-n.stream.answers:
			switch {
			case !ok:
				n.hangUp()
				return errors.New("the stream has ended")
			case m.GetAck().GetVersion() == e.Version:
				return nil
			case m.GetRefusal().GetVersion() == e.Version || m.GetRefusal() != nil && m.GetRefusal().GetVersion() == 0:
				n.version = max(n.version, m.GetRefusal().GetKnown())
				return fmt.Errorf("%s: %s", m.GetRefusal().GetCode(), m.GetRefusal().GetWhy())
			}
		case <-ctx.Done():
			n.hangUp()
			return ctx.Err()
		}
	}
}

func (n *nativeSpeaker) next() uint64 {
	n.version = seal.NextVersion(n.version, time.Now().Add(time.Duration(n.jump.Load())))
	return n.version
}

func (n *nativeSpeaker) put(ctx context.Context, _ bool, ttl time.Duration) (uint64, error) {
	v := n.next()
	e, err := n.keys.Seal(crand.Reader, n.member, seal.Content{Version: v, TTL: ttl, Member: &pb.Member{Node: strconv.FormatUint(v, 10)}})
	if err != nil {
		return v, err
	}
	return v, n.say(ctx, e)
}

func (n *nativeSpeaker) leave(ctx context.Context) (uint64, error) {
	v := n.next()
	return v, n.say(ctx, n.keys.Remove(n.member, v, time.Minute))
}

func (n *nativeSpeaker) hangUp() {
	if n.stream != nil {
		n.stream.cancel()
		n.stream.read.Wait()
		n.stream = nil
	}
}

func (n *nativeSpeaker) close() {
	n.hangUp()
	n.conn.Close()
}

// clusterOf is the cluster of a member's full name.
func clusterOf(who string) string {
	cluster, _, _ := strings.Cut(who, "/")
	return cluster
}

// member is one that lives a life of its own: it says new things, repeats itself,
// leaves, falls silent until its lease has run out, and comes back.
type member struct {
	who string
	speaker
	c    *chronicle
	r    *rand.Rand
	ttl  time.Duration
	last uint64
}

// say says something and notes it, whatever becomes of it.
func (m *member) say(ctx context.Context, leave, fresh bool, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	d := deed{who: m.who, leave: leave, ttl: ttl, sent: time.Now()}
	var err error
	if leave {
		d.seq, err = m.leave(ctx)
	} else {
		d.seq, err = m.put(ctx, fresh, ttl)
	}
	d.done, d.acked = time.Now(), err == nil
	m.last = d.seq
	m.c.did(d)
	return err
}

// live goes on until ctx ends, and says the last word then: with a long lease, or
// that it leaves, or a short one and no more. It is repeated until it is taken.
func (m *member) live(ctx context.Context) (final uint64, err error) {
	for ctx.Err() == nil {
		switch n := m.r.IntN(100); {
		case n < 4:
			m.say(ctx, true, false, 0)
			run.Wait(ctx, m.ttl/4)
		case n < 10:
			if m.say(ctx, false, true, m.ttl) == nil {
				run.Wait(ctx, 2*m.ttl)
			}
		case n < 40:
			m.say(ctx, false, false, m.ttl)
		default:
			m.say(ctx, false, true, m.ttl)
		}
		run.Wait(ctx, time.Duration(20+m.r.IntN(200))*time.Millisecond)
	}
	last := m.r.IntN(4)
	for range 100 {
		switch last {
		case 0:
			err = m.say(ctx, true, false, 0)
		case 1:
			err = m.say(ctx, false, true, m.ttl)
		default:
			if err = m.say(ctx, false, true, 10*time.Minute); err == nil {
				return m.last, nil
			}
		}
		if err == nil {
			return 0, nil
		}
		run.Wait(context.WithoutCancel(ctx), 20*time.Millisecond)
	}
	return 0, fmt.Errorf("%s cannot say its last word: %w", m.who, err)
}
