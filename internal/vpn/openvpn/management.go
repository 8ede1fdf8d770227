// SPDX-License-Identifier: Apache-2.0

package openvpn

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Event is something that the management interface reports: Hold, Remote, State, Traffic, Client, Log, Answer or
// Ready.
type Event any

// Hold waits for a release, which is to come after a time.
type Hold struct{ Wait time.Duration }

// mostHold bounds it: OpenVPN asks for 300 s at most (connect-retry-max).
const mostHold = 5 * time.Minute

// Ready is the greeting.
type Ready struct{}

// State is where a process stands.
type State struct {
	Name   string // such as CONNECTED, WAIT or RECONNECTING
	Detail string
	// Address4 and Address6 are those of the link, as the server gave them; zero: none.
	Address4, Address6 netip.Addr
	// Remote is where the server was reached; not valid: nowhere.
	Remote netip.AddrPort
}

// The names of states that are told apart.
const (
	Wait         = "WAIT" // for the first answer of the server
	Auth         = "AUTH" // the handshake of TLS
	Connected    = "CONNECTED"
	Reconnecting = "RECONNECTING"
	Exiting      = "EXITING"
)

// Traffic counts the bytes of a connection. Client is -1 for a client's own.
type Traffic struct {
	Client  int
	In, Out uint64
}

// ClientEvent is what a server reports of a client.
type ClientEvent struct {
	What   string // CONNECT, REAUTH, ESTABLISHED or DISCONNECT
	Client int
	Key    int // of CONNECT and REAUTH
	Env    map[string]string
}

// The kinds of ClientEvent.
const (
	ClientConnect     = "CONNECT"
	ClientReauth      = "REAUTH"
	ClientEstablished = "ESTABLISHED"
	ClientDisconnect  = "DISCONNECT"
)

// Log is a line of the log.
type Log struct {
	Flags string // F fatal, N error, W warning, I information, D debug
	Text  string
}

// Answer is that to a command.
type Answer struct {
	OK   bool
	Text string
}

// The bounds of what is kept of a peer's words.
const (
	mostLine = 4 << 10
	mostEnv  = 256
)

// Reader makes events of lines. It belongs to one goroutine.
type Reader struct {
	client *ClientEvent // whose environment is being read
}

// Line reads one line without its end. Nothing is returned for a line that is part of a longer event, or not known.
func (r *Reader) Line(line string) Event {
	if len(line) > mostLine {
		return nil
	}
	kind, rest, realtime := strings.Cut(line, ":")
	if !realtime {
		return nil // END, and answers of several lines, are not asked for
	}
	switch kind {
	case "SUCCESS":
		return Answer{true, strings.TrimSpace(rest)}
	case "ERROR":
		return Answer{false, strings.TrimSpace(rest)}
	case ">INFO":
		return Ready{}
	case ">HOLD":
		return hold(rest)
	case ">REMOTE":
		return asked(rest)
	case ">STATE":
		return state(rest)
	case ">BYTECOUNT":
		return traffic("-1," + rest)
	case ">BYTECOUNT_CLI":
		return traffic(rest)
	case ">LOG":
		return logged(rest)
	case ">FATAL":
		return Log{"F", rest}
	case ">CLIENT":
		return r.clientLine(rest)
	}
	return nil
}

// hold reads Waiting for hold release:SECONDS.
func hold(rest string) Event {
	_, text, _ := strings.Cut(rest, ":")
	seconds, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return Hold{}
	}
	return Hold{min(time.Duration(seconds)*time.Second, mostHold)}
}

// asked reads host,port,protocol.
func asked(rest string) Event {
	f := strings.Split(rest, ",")
	if len(f) != 3 {
		return nil
	}
	port, err := strconv.ParseUint(f[1], 10, 16)
	if err != nil {
		return nil
	}
	return Remote{Host: f[0], Port: uint16(port)}
}

// state reads time,name,detail,address4,remote,port,local,port,address6.
func state(rest string) Event {
	f := strings.Split(rest, ",")
	if len(f) < 3 || f[1] == "" {
		return nil
	}
	s := State{Name: f[1], Detail: f[2]}
	if len(f) > 3 {
		s.Address4, _ = netip.ParseAddr(f[3])
	}
	if len(f) > 5 {
		s.Remote, _ = netip.ParseAddrPort(net.JoinHostPort(f[4], f[5]))
	}
	if len(f) > 8 {
		s.Address6, _ = netip.ParseAddr(f[8])
	}
	return s
}

func traffic(rest string) Event {
	f := strings.Split(rest, ",")
	if len(f) != 3 {
		return nil
	}
	client, err := strconv.Atoi(f[0])
	in, inErr := strconv.ParseUint(f[1], 10, 64)
	out, outErr := strconv.ParseUint(f[2], 10, 64)
	if err != nil || inErr != nil || outErr != nil || client < -1 {
		return nil
	}
	return Traffic{client, in, out}
}

func logged(rest string) Event {
	f := strings.SplitN(rest, ",", 3)
	if len(f) < 3 {
		return nil
	}
	return Log{f[1], f[2]}
}

// clientLine reads the header of a client's event, or a variable of its environment.
func (r *Reader) clientLine(rest string) Event {
	what, rest, _ := strings.Cut(rest, ",")
	if what == "ENV" {
		switch name, value, assigned := strings.Cut(rest, "="); {
		case r.client == nil:
		case rest == "END":
			done := *r.client
			r.client = nil
			return done
		case assigned && len(r.client.Env) < mostEnv:
			r.client.Env[name] = value
		}
		return nil
	}
	r.client = nil
	numbers := strings.Split(rest, ",")
	e := ClientEvent{What: what, Env: map[string]string{}}
	var err error
	if e.Client, err = strconv.Atoi(numbers[0]); err != nil || e.Client < 0 {
		return nil
	}
	switch what {
	case ClientConnect, ClientReauth:
		if len(numbers) < 2 {
			return nil
		}
		if e.Key, err = strconv.Atoi(numbers[1]); err != nil || e.Key < 0 {
			return nil
		}
	case ClientEstablished, ClientDisconnect:
	default:
		return nil // such as ADDRESS, which has no environment
	}
	r.client = &e
	return nil
}
