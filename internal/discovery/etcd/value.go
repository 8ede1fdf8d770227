// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// The marker says whose the prefix is, and in which format.
const (
	markerName = "format"
	markerText = "tombolo discovery "
	partName   = "incomplete" // there while members may exist that are not here
	format     = 1
)

// markerFormat reads the value of the marker.
func markerFormat(value []byte) (int, bool) {
	text, ours := strings.CutPrefix(strings.TrimSpace(string(value)), markerText)
	n, err := strconv.Atoi(text)
	return n, ours && err == nil && n > 0
}

// key is where a member stands: PREFIX/v1/<s|n>/<cluster>/<member>, in hex, so
// that no id can be the beginning of another, or have a slash.
func key(prefix string, p discovery.Place) string {
	kind := "s"
	if p.Protocol == discovery.Native {
		kind = "n"
	}
	return prefix + "/v1/" + kind + "/" + hex.EncodeToString([]byte(p.Cluster.ID)) + "/" +
		hex.EncodeToString([]byte(p.Member))
}

// place is the member of a key.
func place(prefix, key string) (discovery.Place, bool) {
	rest, ours := strings.CutPrefix(key, prefix+"/v1/")
	parts := strings.Split(rest, "/")
	if !ours || len(parts) != 3 {
		return discovery.Place{}, false
	}
	var p discovery.Place
	switch parts[0] {
	case "s":
		p.Protocol = discovery.Sidero
	case "n":
		p.Protocol = discovery.Native
	default:
		return discovery.Place{}, false
	}
	for i, id := range []*string{&p.Cluster.ID, &p.Member} {
		raw, err := hex.DecodeString(parts[i+1])
		if err != nil || len(raw) == 0 || len(raw) > limit.DiscoveryID {
			return discovery.Place{}, false
		}
		*id = string(raw)
	}
	return p, parts[1] == strings.ToLower(parts[1]) && parts[2] == strings.ToLower(parts[2])
}

// Flags of a value.
const (
	hasData = 1 << iota
	isRemoved
)

// encode writes a lease for replicas whose clocks have nothing in common with
// ours. The one clock that all of them see is the etcd lease that the key hangs
// on, so that times are relative to its end: an endpoint says how much before the
// end of the member it ends itself, which stays right however old the value is.
// For those who see the value come there is how long the lease had left, and for
// who renews it the time that was asked for.
//
//	1 flags version ttl(s) left(ms) [data] n × (lead(ms) blob)
//
// Numbers are uvarints, bytes have their length before them.
func encode(l roster.Lease, now time.Time, ttl int64) []byte {
	var flags byte
	if l.Data != nil {
		flags |= hasData
	}
	if l.Removed {
		flags |= isRemoved
	}
	out := []byte{format, flags}
	out = binary.AppendUvarint(out, l.Version)
	out = binary.AppendUvarint(out, uint64(ttl))
	out = binary.AppendUvarint(out, millis(l.Expires.Sub(now)))
	if l.Data != nil {
		out = appendBytes(out, l.Data)
	}
	out = binary.AppendUvarint(out, uint64(len(l.Endpoints)))
	for _, e := range l.Endpoints {
		out = binary.AppendUvarint(out, millis(l.Expires.Sub(e.Expires)))
		out = appendBytes(out, e.Blob)
	}
	return out
}

func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

func appendBytes(out, b []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(b))), b...)
}

// value is a lease as it stands in etcd.
type value struct {
	roster.Lease // without times
	ttl          int64
	left         time.Duration
	leads        []time.Duration
}

// at is the lease, if it ends at a time.
func (v value) at(end time.Time) roster.Lease {
	l := v.Lease
	l.Expires = end
	l.Endpoints = make([]roster.Endpoint, len(v.Endpoints))
	for i, e := range v.Endpoints {
		l.Endpoints[i] = roster.Endpoint{Blob: e.Blob, Expires: end.Add(-v.leads[i])}
	}
	return l
}

// timed says whether an endpoint ends before its member.
func (v value) timed() bool {
	for _, d := range v.leads {
		if d > 0 {
			return true
		}
	}
	return false
}

// parser reads a value; what is too short sets bad.
type parser struct {
	rest []byte
	bad  error
}

func (p *parser) number(limit uint64) uint64 {
	n, size := binary.Uvarint(p.rest)
	if p.bad == nil && (size <= 0 || n > limit) {
		p.bad = fmt.Errorf("a number is cut off or above %d", limit)
	}
	if p.bad != nil {
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

func (p *parser) bytes() []byte {
	n := p.number(uint64(len(p.rest)))
	if p.bad == nil && n > uint64(len(p.rest)) {
		p.bad = errors.New("bytes are cut off")
	}
	if p.bad != nil {
		return nil
	}
	out := p.rest[:n:n]
	p.rest = p.rest[n:]
	return out
}

// decode reads what encode wrote, and refuses everything else.
func decode(raw []byte) (value, error) {
	if len(raw) < 2 || raw[0] != format || raw[1]&^(hasData|isRemoved) != 0 {
		return value{}, errors.New("it is not an entry of format 1")
	}
	// No lease of ours is near a day.
	const longest = uint64(24 * time.Hour / time.Millisecond)
	p := &parser{rest: raw[2:]}
	v := value{Lease: roster.Lease{Removed: raw[1]&isRemoved != 0}}
	v.Version = p.number(math.MaxUint64)
	v.ttl = int64(p.number(longest / 1000))
	v.left = time.Duration(p.number(longest)) * time.Millisecond
	if raw[1]&hasData != 0 {
		v.Data = p.bytes()
	}
	for n := p.number(uint64(len(p.rest))); n > 0 && p.bad == nil; n-- {
		v.leads = append(v.leads, time.Duration(p.number(longest))*time.Millisecond)
		v.Endpoints = append(v.Endpoints, roster.Endpoint{Blob: p.bytes()})
	}
	if p.bad == nil && len(p.rest) > 0 {
		p.bad = fmt.Errorf("%d bytes follow", len(p.rest))
	}
	if p.bad != nil {
		return value{}, p.bad
	}
	return v, nil
}
