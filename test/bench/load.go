// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that the load answers beside opStart.
const (
	opAwait       = "await"       // wait for the sessions of a tunnel
	opConnections = "connections" // result: live connections of all sessions
	opBulk        = "bulk"        // start endless streams; args: bulkArgs
	opHalt        = "halt"        // end what bulk and stall started; the far end ends what it keeps
	opPing        = "ping"        // args: time.Duration; result: latency
	opOpens       = "opens"       // args: opensArgs; result: count of streams
	opHold        = "hold"        // open so many idle streams; args: int
	opStall       = "stall"       // start streams that nobody reads; args: stallArgs
)

// bulkArgs ask for endless streams.
type bulkArgs struct {
	Down int `json:"down"` // towards the load
	Up   int `json:"up"`
}

// opensArgs ask for streams that are opened, answered and closed.
type opensArgs struct {
	For      time.Duration `json:"for"`
	Parallel int           `json:"parallel"`
}

// stallArgs ask for streams that fill up because nobody reads them.
type stallArgs struct {
	Down int `json:"down"` // never read by the load
	Up   int `json:"up"`   // never read by the far end
}

// opened counts streams in a time.
type opened struct {
	Streams int           `json:"streams"`
	Wall    time.Duration `json:"wall"`
	Took    latency       `json:"took"` // to open one
}

// load opens streams: the hub of a transport, the client of a chain.
type load struct {
	traffic
	opener opener

	mu      sync.Mutex
	running []stream // of bulk and stall
	held    []stream
	copies  sync.WaitGroup
}

func (l *load) counters() *traffic { return &l.traffic }

func (l *load) do(op string, raw json.RawMessage) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), roles.Patience)
	defer cancel()
	switch op {
	case opStart:
		return l.start(ctx, raw)
	case opAwait:
		if s, ok := l.opener.(*sessions); ok {
			return nil, s.await(ctx)
		}
		return nil, nil
	case opConnections:
		if s, ok := l.opener.(*sessions); ok {
			return s.connections(), nil
		}
		return nil, roles.ErrUnknown
	case opBulk:
		args, err := roles.Arguments[bulkArgs](raw)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(l.startMany(ctx, args.Down, wantSource, l.drain), l.startMany(ctx, args.Up, wantSink, l.pour))
	case opStall:
		args, err := roles.Arguments[stallArgs](raw)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(l.startMany(ctx, args.Down, wantSource, nil), l.startMany(ctx, args.Up, wantStall, l.pour))
	case opHalt:
		l.halt()
		return nil, nil
	case opPing:
		args, err := roles.Arguments[time.Duration](raw)
		if err != nil {
			return nil, err
		}
		return l.ping(ctx, args)
	case opOpens:
		args, err := roles.Arguments[opensArgs](raw)
		if err != nil {
			return nil, err
		}
		return l.opens(ctx, args)
	case opHold:
		args, err := roles.Arguments[int](raw)
		if err != nil {
			return nil, err
		}
		return nil, l.hold(ctx, args)
	}
	return nil, roles.ErrUnknown
}

func (l *load) start(ctx context.Context, raw json.RawMessage) (any, error) {
	t, err := roles.Arguments[transport](raw)
	if err != nil {
		return nil, err
	}
	if t.tunnel() {
		s, err := listenSessions(context.Background(), t)
		if err != nil {
			return nil, err
		}
		l.opener = s
		return started{Address: s.ln.Addr().String()}, nil
	}
	l.opener, err = newDirect(t)
	return started{}, err
}

func (l *load) pour(s stream)  { s.pour(newSource(&l.sent)) }
func (l *load) drain(s stream) { s.drain(&sink{received: &l.received}) }

// startMany opens streams and runs copy on each; nil leaves them alone.
func (l *load) startMany(ctx context.Context, n int, want byte, copy func(stream)) error {
	for range n {
		s, err := l.opener.open(ctx, []byte{want})
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.running = append(l.running, s)
		l.mu.Unlock()
		if copy != nil {
			l.copies.Go(func() { copy(s) })
		}
	}
	return nil
}

// halt ends the running streams and waits for their copies.
func (l *load) halt() {
	l.mu.Lock()
	running := l.running
	l.running = nil
	l.mu.Unlock()
	// At once: the konnectivity client waits for up to 10 s where a tunnel does not answer.
	roles.InParallel(len(running), len(running), func(i int) error { running[i].abort(); return nil })
	l.copies.Wait()
}

// ping sends one ping after the other and waits for each echo.
func (l *load) ping(ctx context.Context, d time.Duration) (latency, error) {
	s, err := l.opener.open(ctx, []byte{wantEcho})
	if err != nil {
		return latency{}, err
	}
	defer s.finish()
	var ping [pingSize]byte
	once := func() error {
		if _, err := s.Write(ping[:]); err != nil {
			return err
		}
		_, err := io.ReadFull(s, ping[:])
		return err
	}
	if err := once(); err != nil { // the first one pays for the opening
		return latency{}, err
	}
	var took []time.Duration
	for end := time.Now().Add(d); ; {
		begin := time.Now()
		if err := once(); err != nil {
			return latency{}, err
		}
		now := time.Now()
		took = append(took, now.Sub(begin))
		if now.After(end) {
			return newLatency(took), nil
		}
	}
}

// opens counts how many streams are opened, answered and closed.
func (l *load) opens(ctx context.Context, args opensArgs) (opened, error) {
	took := make([][]time.Duration, args.Parallel)
	begin := time.Now()
	end := begin.Add(args.For)
	err := roles.InParallel(args.Parallel, args.Parallel, func(i int) error {
		var reply [1]byte
		for {
			begin := time.Now()
			if !begin.Before(end) {
				return nil
			}
			s, err := l.opener.open(ctx, []byte{wantReply})
			if err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(begin))
			if _, err := io.ReadFull(s, reply[:]); err != nil {
				s.abort()
				return fmt.Errorf("no reply: %w", err)
			}
			s.finish()
		}
	})
	all := newLatency(slices.Concat(took...))
	return opened{all.Count, time.Since(begin), all}, err
}

// hold opens idle streams and keeps them, without a goroutine of ours.
func (l *load) hold(ctx context.Context, n int) error {
	first := len(l.held)
	l.held = append(l.held, make([]stream, n)...)
	return roles.InParallel(n, 32, func(i int) error {
		var reply [1]byte
		s, err := l.opener.open(ctx, []byte{wantHold})
		if err != nil {
			return err
		}
		l.held[first+i] = s
		_, err = io.ReadFull(s, reply[:])
		return err
	})
}

// newDirect makes the opener of transports with a connection for each stream.
func newDirect(t transport) (opener, error) {
	switch t.Kind {
	case kindTCP:
		return &direct{dial: dialTCP, addresses: spread(t.Address)}, nil
	case kindTLS:
		conf, err := t.Creds.tls()
		if err != nil {
			return nil, err
		}
		return &direct{addresses: spread(t.Address), dial: dialPlainTLS(conf)}, nil
	case kindHello:
		hello, err := clientHello(serverName)
		return &greeter{direct: direct{dial: dialTCP, addresses: spread(t.Address)}, hello: hello}, err
	case kindUnix:
		return &direct{addresses: []string{t.Address}, dial: dialUnix}, nil
	case kindConnect:
		return &direct{addresses: []string{t.Address}, dial: dialConnect(t.Target)}, nil
	case kindGRPC:
		return &direct{addresses: []string{t.Address}, dial: dialGRPC(t.Target)}, nil
	}
	return nil, fmt.Errorf("the load knows no transport %q", t.Kind)
}
