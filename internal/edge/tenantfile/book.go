// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// book knows which file each tenant comes from, and which files wait for a tenant to go. A change
// costs what its own files and those that wait for them cost.
type book struct {
	table   *tenant.Table
	has     map[string]string          // the tenant in force, by file
	owner   map[string]string          // the file, by tenant
	waiting map[string]map[string]bool // refused files, by the tenant in their way
	behind  map[string][]string        // the tenants in the way, by refused file
}

func newBook(table *tenant.Table) *book {
	return &book{
		table: table, has: map[string]string{}, owner: map[string]string{},
		waiting: map[string]map[string]bool{}, behind: map[string][]string{},
	}
}

// apply changes the table, and counts the tenants that it changed. Files that went come first, so
// that others of the same change can have what they had.
func (b *book) apply(c confdir.Change[content]) (out confdir.Outcome, changed int) {
	out.Refused = map[string]error{}
	again := map[string]bool{} // files that may have what they wait for
	left := func(name string) {
		for file := range b.waiting[name] {
			again[file] = true
		}
		changed++
	}
	for _, file := range c.Gone {
		b.unwait(file)
		delete(again, file)
		if name, known := b.has[file]; known {
			b.table.Remove(name)
			delete(b.has, file)
			delete(b.owner, name)
			left(name)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(c.Good)) {
		old, good := b.has[file], c.Good[file]
		b.unwait(file)
		delete(again, file)
		if claims := b.put(file, old, good.Tenant); len(claims) > 0 {
			b.wait(file, claims)
			out.Refused[file] = refusal(file, good.text, claims, b.owner)
			continue
		}
		left(cmp.Or(old, good.Name))
	}
	out.Again = slices.Sorted(maps.Keys(again))
	return out, changed
}

// put puts the tenant of a file into force, in the place of the one that the file had.
func (b *book) put(file, old string, t *tenant.Tenant) []tenant.Claim {
	if other, taken := b.owner[t.Name]; taken && other != file {
		return []tenant.Claim{{Path: "metadata.name", What: fmt.Sprintf("name %q", t.Name), Other: t.Name}}
	}
	if old == "" {
		old = t.Name
	}
	if claims := b.table.Replace(old, t); len(claims) > 0 {
		return claims
	}
	delete(b.owner, old)
	b.has[file], b.owner[t.Name] = t.Name, file
	return nil
}

func (b *book) wait(file string, claims []tenant.Claim) {
	for _, c := range claims {
		if b.waiting[c.Other] == nil {
			b.waiting[c.Other] = map[string]bool{}
		}
		if !b.waiting[c.Other][file] {
			b.waiting[c.Other][file] = true
			b.behind[file] = append(b.behind[file], c.Other)
		}
	}
}

func (b *book) unwait(file string) {
	for _, name := range b.behind[file] {
		if delete(b.waiting[name], file); len(b.waiting[name]) == 0 {
			delete(b.waiting, name)
		}
	}
	delete(b.behind, file)
}
