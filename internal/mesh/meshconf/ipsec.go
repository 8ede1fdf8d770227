// SPDX-License-Identifier: Apache-2.0

package meshconf

import (
	"cmp"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// The ciphers of IPsec.
const (
	AES    = "aes-256-gcm"
	ChaCha = "chacha20-poly1305"
)

// Whether ESP is in UDP.
const (
	ESPAuto = "auto" // where protocol 50 does not pass
	ESPUDP  = "udp"
)

// ESP is how packets travel with IPsec.
type ESP struct {
	Cipher string // AES or ChaCha
	Port   uint16
	Only   bool // nodes without IPsec are not reached
	InUDP  bool // always; else where protocol 50 does not pass
}

// esp reads what counts with IPsec alone: it may stand there before the engine is switched, and after.
func (r reading) esp(raw v1alpha1.MeshIPsec) ESP {
	out := ESP{cmp.Or(raw.Cipher, AES), uint16(r.number("mesh.ipsec.port", raw.Port, DefaultESPPort, 65535)), raw.Only,
		cmp.Or(raw.ESP, ESPUDP) == ESPUDP}
	if ways := []string{ESPAuto, ESPUDP}; raw.ESP != "" && !slices.Contains(ways, raw.ESP) {
		r.add("mesh.ipsec.esp", "%q is neither %s nor %s%s", short(raw.ESP), ESPAuto, ESPUDP, conf.Meant(raw.ESP, ways...))
	}
	if out.Port == 0 {
		r.add("mesh.ipsec.port", "0 is no port")
	}
	if ciphers := []string{AES, ChaCha}; !slices.Contains(ciphers, out.Cipher) {
		r.add("mesh.ipsec.cipher", "%q is neither %s nor %s%s", short(out.Cipher), AES, ChaCha,
			conf.Meant(out.Cipher, ciphers...))
	}
	return out
}
