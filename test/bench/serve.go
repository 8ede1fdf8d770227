// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/tombolo-io/tombolo/test/roles"
)

// The first byte of a stream tells the far end what to do with it.
const (
	wantSource = 'D' // send without end: a download
	wantSink   = 'U' // read and throw away: an upload
	wantEcho   = 'E' // send back each ping
	wantReply  = 'O' // answer with one byte and close
	wantHold   = 'I' // answer with one byte and keep the stream, without a goroutine
	wantStall  = 'N' // never read again
)

// pingSize is the size of a ping and of its echo.
const pingSize = 128

// opStart starts a role; result: started.
const opStart = "start"

// started says where a role can be reached.
type started struct {
	Address string `json:"address"`
	Join    string `json:"join,omitempty"` // of a hub
	Socket  string `json:"socket,omitempty"`
}

// farEnd serves streams: the agent of a transport, the backend of a chain.
type farEnd struct {
	traffic
	acceptor *acceptor

	mu   sync.Mutex
	held []stream
}

func (f *farEnd) counters() *traffic { return &f.traffic }

func (f *farEnd) do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opStart:
	case opHalt:
		f.release()
		return nil, nil
	default:
		return nil, roles.ErrUnknown
	}
	t, err := roles.Arguments[transport](raw)
	if err != nil {
		return nil, err
	}
	if f.acceptor, err = startAcceptor(context.Background(), t, f.serve); err != nil {
		return nil, err
	}
	return started{Address: f.acceptor.address}, nil
}

// serve does what the first byte of the stream asks for.
func (f *farEnd) serve(s stream) {
	var want [1]byte
	if _, err := io.ReadFull(s, want[:]); err != nil {
		s.abort()
		return
	}
	switch want[0] {
	case wantSource:
		s.pour(newSource(&f.sent))
	case wantSink:
		s.drain(&sink{received: &f.received})
	case wantEcho:
		echo(s)
	case wantReply:
		s.Write(want[:])
	case wantHold, wantStall:
		if want[0] == wantHold {
			s.Write(want[:])
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = append(f.held, s)
		return
	}
	s.finish()
}

// release lets go of the streams that were kept: the load has ended them.
func (f *farEnd) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.held {
		s.abort()
	}
	f.held = nil
}

func echo(s stream) {
	var ping [pingSize]byte
	for {
		if _, err := io.ReadFull(s, ping[:]); err != nil {
			return
		}
		if _, err := s.Write(ping[:]); err != nil {
			return
		}
	}
}
