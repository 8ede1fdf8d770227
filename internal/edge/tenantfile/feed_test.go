// SPDX-License-Identifier: Apache-2.0

package tenantfile_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

func feedOf(name string, book *tenantfile.Book) *tenantfile.Feed {
	return tenantfile.NewFeed(tenantfile.FeedOptions{
		Source: name, Book: book, Hubs: []string{"h1"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
		Reloaded: func(error) {},
	})
}

// text is a tenant in JSON, as sources hand them over.
func text(name, host string) []byte {
	return []byte(`{"apiVersion":"tombolo.dev/v1alpha1","kind":"EdgeTenant","metadata":{"name":"` + name +
		`"},"spec":{"ways":[{"flow":"api","names":["` + host + `"],"hubs":[{"name":"h1","target":"a:1"}]}]}}`)
}

// TestSourcesShareOneTable: who claims first keeps it until it goes; then who waits has it, also in another source.
func TestSourcesShareOneTable(t *testing.T) {
	table := tenant.NewTable()
	book := tenantfile.NewBook(table)
	a, b := feedOf("a", book), feedOf("b", book)
	has := func(host, want string) {
		t.Helper()
		got := ""
		if r, ok := table.ByName(host, nil); ok {
			got = r.Tenant.Name
		}
		if got != want {
			t.Errorf("%s leads to %q, want %q", host, got, want)
		}
	}
	refused := func(f *tenantfile.Feed, want string) {
		t.Helper()
		st := f.Status()
		if want == "" && st.Refused == 0 {
			return
		}
		if want == "" || st.Refused != 1 || !strings.Contains(st.Refusals[0].Reason, want) {
			t.Errorf("%+v, want %q", st, want)
		}
	}
	a.Replace(map[string][]byte{"x": text("c1", "one"), "y": text("c2", "two")})
	b.Replace(map[string][]byte{"x": text("c3", "one"), "y": text("c4", "four")})
	has("one", "c1")
	has("four", "c4")
	refused(b, `name "one" is claimed by tenant "c1" of a x`)
	b.Change(map[string][]byte{"z": text("c2", "zed")}, []string{"x"})
	refused(b, `name "c2" is claimed by tenant "c2" of a y`)
	b.Change(nil, []string{"z"})
	b.Change(map[string][]byte{"x": text("c3", "one")}, nil)
	a.Change(nil, []string{"x"})
	select {
	case <-b.Again():
		b.Retry()
	default:
		t.Fatal("nobody told b that the name is free")
	}
	has("one", "c3")
	refused(b, "")
	b.Change(map[string][]byte{"y": []byte(`{"kind":"EdgeTenant"}`)}, nil) // a mistake keeps what was good
	has("four", "c4")
	refused(b, "apiVersion")
	b.Change(map[string][]byte{"y": []byte(strings.ReplaceAll(string(text("c4", "four")), "h1", "h2"))}, nil)
	refused(b, `has no hub "h2"`)
	b.Replace(map[string][]byte{"y": text("c4", "four")})
	refused(b, "")
	has("one", "")
	if a.Status().Tenants != 1 || b.Status().Tenants != 1 || table.Len() != 2 {
		t.Errorf("%+v, %+v", a.Status(), b.Status())
	}
}
