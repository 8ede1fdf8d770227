// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync"
)

// Offloads are what the kernel may do for us in bulk. The zero value is none.
type Offloads struct {
	UDPGSO bool // datagrams of one size leave as one (UDP_SEGMENT)
	UDPGRO bool // and come as one (UDP_GRO)
	TunTSO bool // segments and checksums of what comes from the TUN are made here
	TunGRO bool // packets for the TUN are joined before they are written
}

// AllOffloads is the default.
func AllOffloads() Offloads { return Offloads{true, true, true, true} }

// Offload is the state of one, for people.
type Offload struct {
	Name string
	On   bool
	Why  string // why not
}

// The names of the offloads.
const (
	udpGSO = "udp_gso"
	udpGRO = "udp_gro"
	tunTSO = "tun_tso"
	tunGRO = "tun_gro"
)

// offloads remembers why one is off.
type offloads struct {
	mu  sync.Mutex
	why map[string]string
}

func (o *offloads) off(name, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == nil {
		o.why = map[string]string{}
	}
	if o.why[name] == "" {
		o.why[name] = why
	}
}

func (o *offloads) state(name string) Offload {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Offload{Name: name, On: o.why[name] == "", Why: o.why[name]}
}

const notWanted = "turned off by the configuration"

// NoOffloads are the states of all of them where none is used.
func NoOffloads(why string) []Offload {
	var out []Offload
	for _, name := range []string{udpGSO, udpGRO, tunTSO, tunGRO} {
		out = append(out, Offload{Name: name, Why: why})
	}
	return out
}
