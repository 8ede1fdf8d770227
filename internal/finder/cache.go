// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// cacheHead begins the file, before its sealed bytes; the number is that of its format.
const (
	cacheWord = "tombolo members cache "
	cacheHead = cacheWord + "1\n"
)

// cached is what the file holds: what services sent, as it came, to be verified
// again by whoever reads it.
type cached struct {
	Saved  time.Time      `json:"saved"`
	Native []cachedNative `json:"native,omitempty"`
	Older  []cachedOlder  `json:"older,omitempty"`
}

type cachedNative struct {
	Cluster seal.ClusterID `json:"cluster"`
	Entry   []byte         `json:"entry"`
	Before  []byte         `json:"before,omitempty"` // the entry that a removal ended
	Until   time.Time      `json:"until"`
	Heard   time.Time      `json:"heard"`
	Sources []string       `json:"sources"`
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

// encodeCache seals the cache with the newest secret.
func encodeCache(keys seal.Keys, c cached) ([]byte, error) {
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, fault.New(fault.CodeInternal, "the cache of members cannot be written").Because(err)
	}
	sealed, err := keys.SealCache(rand.Reader, plain)
	return append([]byte(cacheHead), sealed...), err
}

// decodeCache opens a cache with one of the secrets. A newer format is
// state_newer, anything else that cannot be read state_corrupt.
func decodeCache(keys []seal.Keys, data []byte) (cached, error) {
	corrupt := func(why string) (cached, error) {
		return cached{}, fault.New(fault.CodeStateCorrupt, "the cache of members is not used").Whyf("%s", why).
			Hint("nothing needs to be done: it is written anew")
	}
	head, sealed, ok := bytes.Cut(data, []byte("\n"))
	switch {
	case !ok || !strings.HasPrefix(string(head), cacheWord):
		return corrupt("it is not a cache of ours, or torn")
	case string(head)+"\n" != cacheHead:
		return cached{}, fault.New(fault.CodeStateVersion, "the cache of members is not used").
			Whyf("its format %q is a newer one", shown(string(head))).Hint("run the newer version again, or remove the file")
	}
	for _, k := range keys {
		plain, ok := k.OpenCache(sealed)
		if !ok {
			continue
		}
		var c cached
		if err := json.Unmarshal(plain, &c); err != nil {
			return corrupt("it is sealed well, and holds something else")
		}
		return c, nil
	}
	return corrupt("it is torn, damaged, or sealed with another secret")
}

// readCache reads the file; one that is not there is an empty cache.
func readCache(path string, keys []seal.Keys) (cached, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cached{}, nil
	}
	if err != nil {
		return cached{}, fault.New(fault.CodeStateAccess, "the cache of members cannot be read").Because(err).Hint("see to the rights of %s", path)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit.FinderCacheFile+1))
	if err = errors.Join(err, tooLong(len(data), limit.FinderCacheFile)); err != nil {
		return cached{}, fault.New(fault.CodeStateCorrupt, "the cache of members is not used").Because(err).Hint("remove %s", path)
	}
	return decodeCache(keys, data)
}

// left is how much of a lease is left, of which the file knows the end by a wall
// clock. A clock that has gone back since gives no more than was left then, and
// none gives more than the longest lease.
func left(now, saved, until time.Time) time.Duration {
	if now.Before(saved) {
		now = saved
	}
	return min(until.Sub(now), limit.DiscoveryTTL)
}

// remember fills the books with what is left of the cache.
func (f *Finder) remember(now time.Time, c cached) (n int) {
	wall := now.Round(0)
	for _, e := range c.Native {
		i := slices.IndexFunc(f.cfg.keys, func(k seal.Keys) bool { return k.Cluster() == e.Cluster })
		rest := left(wall, c.Saved, e.Until)
		entry := new(discovery.Entry)
		if i < 0 || rest <= 0 || proto.Unmarshal(e.Entry, entry) != nil {
			continue
		}
		before := new(discovery.Entry)
		if len(e.Before) > 0 && proto.Unmarshal(e.Before, before) == nil {
			f.native.hear(now, f.cfg.keys[i], heardFrom{cached: true, at: e.Heard}, before)
		}
		for _, name := range e.Sources {
			if id, how, _ := f.native.hear(now, f.cfg.keys[i], heardFrom{name: name, cached: true, at: e.Heard}, entry); how == heardNews {
				f.native.shorten(id, now.Add(rest))
				n++
			}
		}
	}
	for _, a := range c.Older {
		i := slices.IndexFunc(f.clients, func(cl *client) bool {
			return cl.older != nil && cl.service.Name == a.Source && cl.keys.Cluster() == a.Secret
		})
		rest := left(wall, c.Saved, a.Until)
		if i < 0 || rest <= 0 {
			continue
		}
		if f.clients[i].older.remember(now.Add(rest), a) {
			n++
		}
	}
	return n
}

// shorten ends a lease no later than at a time.
func (b *nativeBook) shorten(id seal.MemberID, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.members[id]; w != nil && until.Before(w.until) {
		w.until = until
	}
}

// remember takes an affiliate from the cache.
func (b *olderBook) remember(until time.Time, a cachedOlder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(a.Data) == 0 || b.members[a.ID] != nil {
		return false
	}
	b.hearOne(until, &pb.Affiliate{Id: a.ID, Data: a.Data, Endpoints: a.Endpoints})
	w := b.members[a.ID]
	if w == nil {
		return false
	}
	w.listed, w.cached, w.until, w.heard = false, true, until, a.Heard
	return true
}

// gather is what the books hold, for the file.
func (f *Finder) gather(now time.Time) cached {
	wall := now.Round(0)
	c := cached{Saved: wall, Native: f.native.cache(now)}
	for _, cl := range f.clients {
		if cl.older != nil {
			c.Older = append(c.Older, cl.older.cache(now, cl.keys.Cluster())...)
		}
	}
	return c
}

func (b *nativeBook) cache(now time.Time) []cachedNative {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cachedNative
	for _, w := range b.members {
		data, err := proto.Marshal(w.entry)
		if err != nil || !now.Before(w.until) || len(w.sources) == 0 {
			continue
		}
		e := cachedNative{Cluster: w.cluster, Entry: data, Until: now.Round(0).Add(w.until.Sub(now)), Heard: w.sources[0].at.Round(0)}
		for _, h := range w.sources {
			e.Sources = append(e.Sources, h.name)
		}
		if w.before != nil {
			if e.Before, err = proto.Marshal(w.before); err != nil {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

func (b *olderBook) cache(now time.Time, secret seal.ClusterID) []cachedOlder {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cachedOlder
	for id, w := range b.members {
		until := b.end(now, w)
		if now.Before(until) {
			out = append(out, cachedOlder{Source: b.name, Secret: secret, ID: id, Data: w.data, Endpoints: w.endpoints,
				Until: now.Round(0).Add(until.Sub(now)), Heard: w.heard.Round(0)})
		}
	}
	return out
}
