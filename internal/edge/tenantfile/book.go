// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// place is where a tenant comes from: a file, or a name in another source.
type place struct{ source, at string }

func (p place) String() string {
	if p.source == "" {
		return p.at
	}
	return p.source + " " + p.at
}

func compare(a, b place) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.at, b.at)) }

// Book knows which place each tenant comes from, and which places wait for a tenant to go, across
// all sources of one table. A change costs what its own places and those that wait for them cost.
type Book struct {
	mu      sync.Mutex
	table   *tenant.Table
	has     map[place]string          // the tenant in force, by place
	counts  map[string]int            // of them, by source
	owner   map[string]place          // by tenant
	waiting map[string]map[place]bool // refused places, by the tenant in their way
	behind  map[place][]string        // the tenants in the way, by refused place
	retry   map[string]func()         // by source: it may have what it waits for; must not block
}

// NewBook makes a Book that alone changes the table.
func NewBook(table *tenant.Table) *Book {
	return &Book{
		table: table, has: map[place]string{}, counts: map[string]int{}, owner: map[string]place{},
		waiting: map[string]map[place]bool{}, behind: map[place][]string{}, retry: map[string]func(){},
	}
}

// join adds a source before anything is applied.
func (b *Book) join(source string, retry func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retry[source] = retry
}

// count is the number of tenants in force that come from a source.
func (b *Book) count(source string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[source]
}

// outcome is what became of a change.
type outcome struct {
	refused map[string]error // by name in the source
	again   []string         // refused ones of this source that may be good now
	changed int              // tenants
}

// apply changes the table. Names that went come first, so that others of the same change can have what
// they had. Other sources are told if they may have what they wait for.
func (b *Book) apply(source string, good map[string]content, gone []string) outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := outcome{refused: map[string]error{}}
	again := map[place]bool{}
	left := func(name string) {
		for p := range b.waiting[name] {
			again[p] = true
		}
		out.changed++
	}
	for _, at := range gone {
		p := place{source, at}
		b.unwait(p)
		delete(again, p)
		if name, known := b.has[p]; known {
			b.table.Remove(name)
			delete(b.has, p)
			b.counts[source]--
			delete(b.owner, name)
			left(name)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(good)) {
		p, next := place{source, at}, good[at]
		old := b.has[p]
		b.unwait(p)
		delete(again, p)
		if claims := b.put(p, old, next.Tenant); len(claims) > 0 {
			b.wait(p, claims)
			out.refused[at] = refusal(p.String(), next.text, claims, b.owner)
			continue
		}
		left(cmp.Or(old, next.Name))
	}
	told := map[string]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(again), compare) {
		switch {
		case p.source == source:
			out.again = append(out.again, p.at)
		case !told[p.source]:
			told[p.source] = true
			b.retry[p.source]()
		}
	}
	return out
}

// put puts the tenant of a place into force, instead of the one that the place had.
func (b *Book) put(p place, old string, t *tenant.Tenant) []tenant.Claim {
	if other, taken := b.owner[t.Name]; taken && other != p {
		return []tenant.Claim{{Path: "metadata.name", What: fmt.Sprintf("name %q", t.Name), Other: t.Name}}
	}
	fresh := old == ""
	if fresh {
		old = t.Name
	}
	if claims := b.table.Replace(old, t); len(claims) > 0 {
		return claims
	}
	if fresh {
		b.counts[p.source]++
	}
	delete(b.owner, old)
	b.has[p], b.owner[t.Name] = t.Name, p
	return nil
}

func (b *Book) wait(p place, claims []tenant.Claim) {
	for _, c := range claims {
		if b.waiting[c.Other] == nil {
			b.waiting[c.Other] = map[place]bool{}
		}
		if !b.waiting[c.Other][p] {
			b.waiting[c.Other][p] = true
			b.behind[p] = append(b.behind[p], c.Other)
		}
	}
}

func (b *Book) unwait(p place) {
	for _, name := range b.behind[p] {
		if delete(b.waiting[name], p); len(b.waiting[name]) == 0 {
			delete(b.waiting, name)
		}
	}
	delete(b.behind, p)
}
