// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// cacheHead begins the file, before its sealed bytes; the number is that of its format.
const (
	cacheWord  = "tombolo members cache "
	cacheHead1 = cacheWord + "1\n" // sealed with one secret; removals end with the longest lease
	cacheHead  = cacheWord + "2\n"
)

// cached is what the file holds: what services sent, as it came, to be verified
// again by whoever reads it.
type cached struct {
	Saved  time.Time      `json:"saved"`
	Native []cachedNative `json:"native,omitempty"`
	Older  []cachedOlder  `json:"older,omitempty"`
	Past   []cachedPast   `json:"past,omitempty"`

	first bool // it is of the first format
}

type cachedNative struct {
	Cluster seal.ClusterID `json:"cluster"`
	Entry   []byte         `json:"entry"`
	Before  []byte         `json:"before,omitempty"` // the entry that a removal ended
	Until   time.Time      `json:"until"`
	Heard   time.Time      `json:"heard"`
	Sources []string       `json:"sources"`
}

// cachedPast is the last version of a member that is gone, so that nothing of it returns.
type cachedPast struct {
	ID      seal.MemberID `json:"id"`
	Version uint64        `json:"version"`
	Until   time.Time     `json:"until"` // when it may be forgotten
}

type cachedOlder struct {
	Source    string         `json:"source"`
	Secret    seal.ClusterID `json:"secret"` // names the secret that opens it
	ID        string         `json:"id"`
	Data      []byte         `json:"data"`
	Endpoints [][]byte       `json:"endpoints,omitempty"`
	Until     time.Time      `json:"until"`
	Heard     time.Time      `json:"heard"`
}

// encodeCache seals the cache so that each of the secrets opens it: in the last step of
// a rotation the old one is taken away, and the cache must not go with it.
func encodeCache(keys []seal.Keys, c cached) ([]byte, error) {
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, fault.New(fault.CodeInternal, "the cache of members cannot be written").Because(err)
	}
	sealed, err := seal.SealCacheFor(rand.Reader, keys, plain)
	return append([]byte(cacheHead), sealed...), err
}

// decodeCache opens a cache with one of the secrets. A newer format is
// state_newer, anything else that cannot be read state_corrupt.
func decodeCache(keys []seal.Keys, data []byte) (cached, error) {
	head, sealed, ok := bytes.Cut(data, []byte("\n"))
	switch {
	case !ok || !strings.HasPrefix(string(head), cacheWord):
		return corruptCache("it is not a cache of ours, or torn")
	case string(head)+"\n" == cacheHead1:
		for _, k := range keys {
			if plain, ok := k.OpenCache(sealed); ok {
				return readCached(plain, true)
			}
		}
		return corruptCache("it is torn, damaged, or sealed with another secret")
	case string(head)+"\n" != cacheHead:
		return cached{}, fault.New(fault.CodeStateVersion, "the cache of members is not used").
			Whyf("its format %q is a newer one", shown(string(head))).Hint("run the newer version again, or remove the file")
	}
	plain, ok := seal.OpenCacheFor(keys, sealed)
	if !ok {
		return corruptCache("it is torn, damaged, or sealed with other secrets")
	}
	return readCached(plain, false)
}

func readCached(plain []byte, first bool) (cached, error) {
	c := cached{first: first}
	if err := json.Unmarshal(plain, &c); err != nil {
		return corruptCache("it is sealed well, and holds something else")
	}
	return c, nil
}

func corruptCache(why string) (cached, error) {
	return cached{}, fault.New(fault.CodeStateCorrupt, "the cache of members is not used").Whyf("%s", why).
		Hint("nothing needs to be done: it is written anew")
}

// readCache reads the file; one that is not there is an empty cache.
func readCache(path string, keys []seal.Keys) (cached, error) {
	data, err := private.ReadPublic(path, mostCacheBytes)
	var disk *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cached{}, nil
	case errors.As(err, &disk) && disk.Op == "open":
		return cached{}, fault.New(fault.CodeStateAccess, "the cache of members cannot be read").Because(err).
			Hint("see to the rights of %s", path)
	case err != nil:
		return cached{}, fault.New(fault.CodeStateCorrupt, "the cache of members is not used").Because(err).
			Hint("remove %s", path)
	}
	return decodeCache(keys, data)
}

// left is how much of a lease is left; the file has its end by the wall clock. If the clock was
// set back since, no more is left than when the file was saved, and never more than most. A
// negative value is how long ago it ended.
func left(now, saved, until time.Time, most time.Duration) time.Duration {
	if now.Before(saved) {
		now = saved
	}
	return min(until.Sub(now), most)
}

// ago is a time of the file as one of this process, so that it can be compared with
// others: none is later than now.
func ago(now, saved, at time.Time) time.Time {
	if at.IsZero() { // a file from before this was saved
		at = saved
	}
	return now.Add(-max(0, saved.Sub(at)))
}

// diskCache keeps the entries of all services on disk, so that a node that restarts in an outage
// knows its members.
type diskCache struct {
	dir      string
	readOnly bool // a client that only watches, or a file of a newer version
	native   *nativeBook
	subs     *subscriptions
	log      *slog.Logger

	mu     sync.Mutex
	status Status
}

func (d *diskCache) get() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// read remembers the members that the last run knew.
func (d *diskCache) read(now time.Time) {
	path := filepath.Join(d.dir, cacheFile)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = Status{Source: path, Kind: KindCache, State: StateAttending}
	was, err := readCache(path, d.subs.keys())
	if err != nil {
		if why, anew := d.brokenLocked(err); anew {
			d.log.Warn("the cache of members is not used", telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Explain())
		}
		d.readOnly = d.readOnly || d.status.Code == fault.CodeStateVersion
		return
	}
	d.status.Members, d.status.LastContact = d.remember(now, was), was.Saved
}

// brokenLocked notes why the cache cannot be used, and reports whether it could until now.
func (d *diskCache) brokenLocked(err error) (why *fault.Fault, anew bool) {
	why, anew = fault.From(err), d.status.State != StateBroken
	d.status.State, d.status.Code, d.status.Reason = StateBroken, why.Code, why.Error()
	return why, anew
}

// save writes the cache; a nil one is none.
func (d *diskCache) save(now time.Time) {
	if d == nil || d.readOnly {
		return
	}
	data, err := encodeCache(d.subs.keys(), d.gather(now))
	if err == nil && len(data) > mostCacheBytes {
		err = fault.New(fault.CodeStateAccess, "the cache of members is not written").
			Whyf("it has %d bytes, at most %d are read", len(data), mostCacheBytes)
	}
	if err == nil {
		err = writeFile(filepath.Join(d.dir, cacheFile), data)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.LastContact = now
	if err != nil {
		if why, anew := d.brokenLocked(err); anew {
			d.log.Warn("the cache of members cannot be written: a restart during an outage finds nobody",
				telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Explain())
		}
		return
	}
	d.status.State, d.status.Code, d.status.Reason = StateAttending, "", ""
}

// remember fills the books with what is left of the cache.
func (d *diskCache) remember(now time.Time, c cached) (n int) {
	for _, before := range []bool{true, false} { // whom a removal meant is known first
		for _, e := range c.Native {
			if d.rememberNative(now, c, e, before) {
				n++
			}
		}
	}
	wall := now.Round(0)
	for _, a := range c.Older {
		subs := d.subs.all()
		i := slices.IndexFunc(subs, func(cl *subscription) bool {
			return cl.older != nil && cl.service.Name == a.Source && cl.keys.Cluster() == a.Secret
		})
		rest := left(wall, c.Saved, a.Until, limit.DiscoveryTTL)
		if i < 0 || rest <= -staleHold || rest <= 0 && subs[i].service.Protocol == ProtocolNative {
			continue
		}
		if wall.Before(c.Saved) { // the clock has gone back: what was heard before a removal stays so
			a.Heard = ago(now, c.Saved, a.Heard)
		}
		if subs[i].older.remember(now.Add(rest), a) {
			n++
		}
	}
	for _, p := range c.Past {
		d.native.forgot(now, p.ID, p.Version, p.Until.Sub(wall))
	}
	return n
}

// rememberNative takes an entry from the cache, or the one that it ended.
func (d *diskCache) rememberNative(now time.Time, c cached, e cachedNative, before bool) (news bool) {
	i := slices.IndexFunc(d.subs.keys(), func(k seal.Keys) bool { return k.Cluster() == e.Cluster })
	entry := new(discovery.Entry)
	if i < 0 || proto.Unmarshal(e.Entry, entry) != nil {
		return false
	}
	most := limit.DiscoveryTTL
	if entry.GetRemoved() {
		if most = removalCounts; c.first {
			e.Until = e.Until.Add(staleHold)
		}
	}
	rest := left(now.Round(0), c.Saved, e.Until, most)
	if rest <= -staleHold || rest <= 0 && (entry.GetRemoved() || !d.subs.asks(ProtocolSidero)) {
		d.native.forgot(now, seal.MemberOf(entry.GetMember()), entry.GetVersion(), rest+rememberGone)
		return false
	}
	from := heardFrom{cached: true, at: e.Heard}
	if before {
		ended := new(discovery.Entry)
		if len(e.Before) > 0 && proto.Unmarshal(e.Before, ended) == nil {
			d.native.hear(now, d.subs.keys()[i], from, ended)
		}
		return false
	}
	for _, from.name = range e.Sources {
		if id, how, _ := d.native.hear(now, d.subs.keys()[i], from, entry); how == heardNews {
			d.native.shorten(id, now.Add(rest))
			news = true
		}
	}
	return news
}

// forgot keeps the last version of a member that is gone.
func (b *nativeBook) forgot(now time.Time, id seal.MemberID, version uint64, rest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rest > 0 && len(b.past) < mostMembers {
		b.past[id] = pastVersion{version, now.Add(min(rest, rememberGone+staleHold))}
	}
}

// asks reports whether a service may speak another protocol than one.
func (s *subscriptions) asks(not Protocol) bool {
	return slices.ContainsFunc(s.all(), func(c *subscription) bool { return c.service.Protocol != not })
}

// shorten ends a lease no later than at a time.
func (b *nativeBook) shorten(id seal.MemberID, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.members[id]; w != nil && until.Before(w.until) {
		w.until, w.began = until, time.Time{}
	}
}

// remember takes an affiliate from the cache.
func (b *olderBook) remember(until time.Time, a cachedOlder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(a.Data) == 0 || b.members[a.ID] != nil {
		return false
	}
	b.hearOneLocked(until, &pb.Affiliate{Id: a.ID, Data: a.Data, Endpoints: a.Endpoints})
	w := b.members[a.ID]
	if w == nil {
		return false
	}
	w.listed, w.cached, w.until, w.heard = false, true, until, a.Heard
	return true
}

// gather is what the books hold, for the file.
func (d *diskCache) gather(now time.Time) cached {
	wall := now.Round(0)
	c := cached{Saved: wall}
	c.Native, c.Past = d.native.cache(now)
	for _, cl := range d.subs.all() {
		if cl.older != nil {
			c.Older = append(c.Older, cl.older.cache(now, cl.keys.Cluster())...)
		}
	}
	return c
}

func (b *nativeBook) cache(now time.Time) (out []cachedNative, past []cachedPast) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := func(t time.Time) time.Time { return now.Round(0).Add(t.Sub(now)) }
	for id, p := range b.past {
		past = append(past, cachedPast{id, p.version, at(p.until)})
	}
	for id, w := range b.members {
		end := b.endLocked(now, w)
		if over := !now.Before(end); over || len(w.sources) == 0 {
			last := w.entry.GetVersion()
			if !over { // no service states it any longer; another one may
				last--
			}
			past = append(past, cachedPast{id, last, at(end.Add(rememberGone))})
			continue
		}
		all := w.all()
		for _, cluster := range w.clusters() {
			data, err := proto.Marshal(all[cluster])
			if err != nil {
				continue
			}
			e := cachedNative{Cluster: cluster, Entry: data, Until: at(w.until), Heard: w.sources[0].at.Round(0)}
			for _, h := range w.sources {
				e.Sources = append(e.Sources, h.name)
			}
			if before := w.before[cluster]; before != nil {
				if e.Before, err = proto.Marshal(before); err != nil {
					continue
				}
			}
			out = append(out, e)
		}
	}
	return out, past
}

func (b *olderBook) cache(now time.Time, secret seal.ClusterID) []cachedOlder {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cachedOlder
	for id, w := range b.members {
		until := b.endLocked(now, w)
		if now.Before(b.here.end(now, until)) {
			at := func(t time.Time) time.Time { return now.Round(0).Add(t.Sub(now)) }
			out = append(out, cachedOlder{Source: b.name, Secret: secret, ID: id, Data: w.data, Endpoints: w.endpoints,
				Until: at(until), Heard: w.heard.Round(0)})
		}
	}
	return out
}
