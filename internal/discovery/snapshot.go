// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// A snapshot file. Numbers are big endian; a sum is a CRC-32C.
//
//	header   magic (16) | format u32 | sum of both u32      the same in every format
//	record   length u32 | sum of the body u32 | body        a member, in any order
//	trailer  0 u32 | sum of the body u32 | number of records u64, sum of their sums u32
//
//	body     protocol u8 | flags u8 (1: removed, 2: with data, 4: with a party) | version u64 | time left in ns u64 |
//	         cluster, member, data: length u32, bytes | number of endpoints u32 |
//	         endpoints: time left in ns u64, length u32, bytes |
//	         party, in whose share it is: length u32 (4 or 16), bytes
const (
	snapshotMagic  = "tombolo members\n"
	snapshotFormat = 1
	headerLength   = len(snapshotMagic) + 8
	frameLength    = 8
	trailerLength  = 12
	flagRemoved    = 1
	flagData       = 2
	flagParty      = 4
)

// The ways in which a file is not what it should be.
var (
	errForeign = errors.New("it is not a snapshot of a discovery service")
	errTorn    = errors.New("it ends too early")
)

// newerError is the format of a file that a newer release wrote.
type newerError uint32

func (e newerError) Error() string { return fmt.Sprintf("it has format %d", uint32(e)) }

// kept is a member as a snapshot keeps it: its lease's times are replaced by what
// is left of them, since the next process has another clock.
type kept struct {
	place Place
	lease roster.Lease // without times
	left  time.Duration
	lefts []time.Duration // of the endpoints
	by    netip.Addr      // the party in whose share it is; not valid: none
}

// keep is the member at a time; false: there is nothing left to keep.
func keep(p Place, l roster.Lease, by netip.Addr, now time.Time) (kept, bool) {
	l, _ = l.Expire(now)
	if !l.Exists() {
		return kept{}, false
	}
	k := kept{place: p, lease: l, left: left(l.Expires, now), by: by}
	for _, e := range l.Endpoints {
		k.lefts = append(k.lefts, left(e.Expires, now))
	}
	return k, true
}

func left(until, now time.Time) time.Duration { return min(until.Sub(now), limit.DiscoveryTTL) }

// at is the lease with times again.
func (k kept) at(now time.Time) roster.Lease {
	l := k.lease
	l.Expires = now.Add(k.left)
	for i := range l.Endpoints {
		l.Endpoints[i].Expires = now.Add(k.lefts[i])
	}
	return l
}

func (k kept) append(b []byte) []byte {
	flags := byte(0)
	if k.lease.Removed {
		flags |= flagRemoved
	}
	if k.lease.Data != nil {
		flags |= flagData
	}
	if k.by.IsValid() {
		flags |= flagParty
	}
	chunk := func(s []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = append(b, byte(k.place.Protocol), flags)
	b = binary.BigEndian.AppendUint64(b, k.lease.Version)
	b = binary.BigEndian.AppendUint64(b, uint64(k.left))
	chunk([]byte(k.place.ID))
	chunk([]byte(k.place.Member))
	chunk(k.lease.Data)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.lefts)))
	for i, e := range k.lease.Endpoints {
		b = binary.BigEndian.AppendUint64(b, uint64(k.lefts[i]))
		chunk(e.Blob)
	}
	if k.by.IsValid() {
		chunk(k.by.AsSlice())
	}
	return b
}

// body reads the body of a record, each time as far as there are bytes.
type body struct {
	rest []byte
	bad  bool
}

func (b *body) take(n uint32) []byte {
	if b.bad || uint64(n) > uint64(len(b.rest)) {
		b.bad = true
		return nil
	}
	out := b.rest[:n]
	b.rest = b.rest[n:]
	return out
}

func (b *body) byte() byte {
	if s := b.take(1); s != nil {
		return s[0]
	}
	return 0
}

func (b *body) u32() uint32 {
	if s := b.take(4); s != nil {
		return binary.BigEndian.Uint32(s)
	}
	return 0
}

func (b *body) u64() uint64 {
	if s := b.take(8); s != nil {
		return binary.BigEndian.Uint64(s)
	}
	return 0
}

func (b *body) left() time.Duration {
	n := b.u64()
	if n == 0 || n > uint64(limit.DiscoveryTTL) {
		b.bad = true
	}
	return time.Duration(n)
}

// parseKept reads what append wrote, and nothing else.
func parseKept(raw []byte) (k kept, ok bool) {
	b := &body{rest: raw}
	k.place.Protocol = Protocol(b.byte())
	flags := b.byte()
	k.lease.Version = b.u64()
	k.lease.Removed = flags&flagRemoved != 0
	k.left = b.left()
	k.place.ID = string(b.take(b.u32()))
	k.place.Member = string(b.take(b.u32()))
	data := b.take(b.u32())
	if flags&flagData != 0 {
		k.lease.Data = append([]byte{}, data...)
	}
	n := b.u32()
	if uint64(n) > uint64(len(b.rest))/12 { // before anything is made for them
		return kept{}, false
	}
	for range n {
		k.lefts = append(k.lefts, b.left())
		k.lease.Endpoints = append(k.lease.Endpoints, roster.Endpoint{Blob: bytes.Clone(b.take(b.u32()))})
	}
	if flags&flagParty != 0 {
		k.by, _ = netip.AddrFromSlice(b.take(b.u32()))
		b.bad = b.bad || !k.by.IsValid() || k.by != party(k.by)
	}
	if b.bad || len(b.rest) > 0 || flags > flagRemoved|flagData|flagParty || flags&flagData == 0 && len(data) > 0 ||
		k.place.Protocol != Sidero && k.place.Protocol != Native {
		return kept{}, false
	}
	return k, true
}

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// snapshotWriter writes a snapshot, one member after another. An error stays, and
// Close tells it.
type snapshotWriter struct {
	w     *bufio.Writer
	buf   []byte
	count uint64
	size  int64
	sums  uint32
	err   error
}

func newSnapshotWriter(w io.Writer) *snapshotWriter {
	s := &snapshotWriter{w: bufio.NewWriterSize(w, 64<<10)}
	s.write(formatHeader(snapshotFormat))
	return s
}

func formatHeader(format uint32) []byte {
	head := binary.BigEndian.AppendUint32([]byte(snapshotMagic), format)
	return binary.BigEndian.AppendUint32(head, castagnoli(head))
}

func (s *snapshotWriter) write(b []byte) {
	if s.size += int64(len(b)); s.size > discoveryFile && s.err == nil {
		s.err = fmt.Errorf("the snapshot is larger than %d bytes, which is the bound of the file", discoveryFile)
	}
	if s.err == nil {
		_, s.err = s.w.Write(b)
	}
}

func (s *snapshotWriter) add(k kept) {
	if s.err != nil {
		return
	}
	s.buf = k.append(append(s.buf[:0], make([]byte, frameLength)...))
	content := s.buf[frameLength:]
	if len(content) > discoveryRecord {
		s.err = fmt.Errorf("a member has %d bytes, more than a record may have", len(content))
		return
	}
	sum := castagnoli(content)
	binary.BigEndian.PutUint32(s.buf, uint32(len(content)))
	binary.BigEndian.PutUint32(s.buf[4:], sum)
	s.write(s.buf)
	s.count++
	s.sums = sumOfSums(s.sums, sum)
}

func (s *snapshotWriter) Close() error {
	content := binary.BigEndian.AppendUint64(nil, s.count)
	content = binary.BigEndian.AppendUint32(content, s.sums)
	s.write(append(binary.BigEndian.AppendUint32(make([]byte, 4), castagnoli(content)), content...))
	if s.err == nil {
		s.err = s.w.Flush()
	}
	return s.err
}

// sumOfSums goes on with a sum over the sums of records, so that none is missing,
// doubled or in another's place.
func sumOfSums(all, one uint32) uint32 {
	return crc32.Update(all, crc32.MakeTable(crc32.Castagnoli), binary.BigEndian.AppendUint32(nil, one))
}

// readSnapshot reads a snapshot to its end and calls fn for each member. What is
// wrong with it may show after many members: read it once with an fn that does
// nothing before one that does.
func readSnapshot(from io.Reader, fn func(kept)) error {
	r := bufio.NewReaderSize(io.LimitReader(from, discoveryFile), 64<<10)
	if err := readHeader(r); err != nil {
		return err
	}
	var buf []byte
	var sums uint32
	for count := uint64(0); ; count++ {
		frame := make([]byte, frameLength)
		if _, err := io.ReadFull(r, frame); err != nil {
			return torn(err)
		}
		length, sum := binary.BigEndian.Uint32(frame), binary.BigEndian.Uint32(frame[4:])
		if length == 0 {
			return readTrailer(r, sum, count, sums)
		}
		if length > discoveryRecord {
			return fmt.Errorf("record %d has %d bytes", count, length)
		}
		if uint32(cap(buf)) < length {
			buf = make([]byte, length)
		}
		buf = buf[:length]
		if _, err := io.ReadFull(r, buf); err != nil {
			return torn(err)
		}
		k, ok := parseKept(buf)
		if !ok || castagnoli(buf) != sum {
			return fmt.Errorf("record %d is damaged", count)
		}
		sums = sumOfSums(sums, sum)
		fn(k)
	}
}

func readHeader(r io.Reader) error {
	head := make([]byte, headerLength)
	n, err := io.ReadFull(r, head)
	m := min(n, len(snapshotMagic))
	switch {
	case string(head[:m]) != snapshotMagic[:m] && len(bytes.Trim(head[:n], "\x00")) > 0: // zeroes: the disk never got it
		return errForeign
	case err != nil:
		return torn(err)
	}
	sum := binary.BigEndian.Uint32(head[headerLength-4:])
	switch format := binary.BigEndian.Uint32(head[len(snapshotMagic):]); {
	case castagnoli(head[:headerLength-4]) != sum:
		return errors.New("its header is damaged")
	case format > snapshotFormat:
		return newerError(format)
	case format != snapshotFormat:
		return fmt.Errorf("it has format %d, which there never was", format)
	}
	return nil
}

func readTrailer(r io.Reader, sum uint32, count uint64, sums uint32) error {
	content := make([]byte, trailerLength+1)
	n, err := io.ReadFull(r, content)
	switch {
	case err == nil:
		return errors.New("there is data after its end")
	case n < trailerLength:
		return torn(err)
	case castagnoli(content[:n]) != sum || binary.BigEndian.Uint32(content[8:]) != sums:
		return errors.New("its trailer is damaged")
	case binary.BigEndian.Uint64(content) != count:
		return fmt.Errorf("it has %d records instead of %d", count, binary.BigEndian.Uint64(content))
	}
	return nil
}

// torn tells the end of the file from an error of the disk.
func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}
