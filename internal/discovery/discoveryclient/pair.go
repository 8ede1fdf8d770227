// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// pairBook has the secrets that members of a file share with this node alone.
type pairBook struct {
	mu   sync.Mutex
	keys map[string]seal.Keys // by file
	why  map[string]string    // a file cannot be read
}

// read reads the files again: each look is one, as a secret may be replaced. One that cannot be read is none.
func (b *pairBook) read(said []roster.Said) {
	keys, why := map[string]seal.Keys{}, map[string]string{}
	for _, s := range said {
		file := s.Facts.Pair.File
		if file == "" {
			continue
		}
		secret, err := ReadSecret(file)
		if err != nil {
			f := fault.From(err)
			why[file] = f.Error()
			continue
		}
		keys[file] = secret.Keys()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.why = keys, why
}

// add says which secrets are read, so that another one is another fact.
func (b *pairBook) add(said []roster.Said) []roster.Said {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Clone(said)
	for i := range out {
		if k, ok := b.keys[out[i].Facts.Pair.File]; ok {
			out[i].Facts.Pair.ID = k.Cluster().String()
		}
	}
	return out
}

// problems name the members whose secrets cannot be read.
func (b *pairBook) problems(said []roster.Said) (out []string) {
	b.mu.Lock()
	why := maps.Clone(b.why)
	b.mu.Unlock()
	for _, s := range said {
		if w, bad := why[s.Facts.Pair.File]; bad {
			out = append(out, fmt.Sprintf("%s is no peer: %s", s.Facts.Node, w))
		}
	}
	return out
}

func (b *pairBook) get(file string) (seal.Keys, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.keys[file]
	return k, ok
}

// PairKeys are those of a secret that a member of the file shares with this node alone, by the path of its file.
func (c *Client) PairKeys(file string) (seal.Keys, bool) {
	if c.list == nil {
		return seal.Keys{}, false
	}
	return c.list.pairs.get(file)
}
