// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

func words() confdir.Words {
	return confdir.Words{
		One: "tenant", Many: "tenants", All: "tenants", Setting: "tenants", Check: "tombolo config validate",
	}
}

// Options are what Files need.
type Options struct {
	Paths    func() []string // files and folders, as they are configured now
	Table    *tenant.Table   // only these files change it
	Hubs     []string        // that tenants may name; nil: any
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a change, nil, or a file that is refused
}

// Files are the files of the tenants.
type Files struct {
	*confdir.Files[content]

	book    *book
	disk    confdir.Reader
	tenants atomic.Int64 // in force
}

// content is that of one good file.
type content struct {
	*tenant.Tenant
	text []byte // to find places in, if others have what the tenant claims
}

// Status is what an edge knows about its tenants.
type Status struct {
	confdir.Status

	Tenants int // in force
}

// New makes Files that have read nothing yet.
func New(o Options) *Files {
	f := &Files{book: newBook(o.Table), disk: confdir.ReadDisk}
	f.Files = confdir.New(confdir.Options[content]{
		Words: words(), Paths: o.Paths, Read: o.read, Apply: f.apply, Log: o.Log, Now: o.Now, Reloaded: o.Reloaded,
		Disk: func(path string, most int64) ([]byte, error) { return f.disk(path, most) },
	})
	return f
}

func (o Options) read(file string, read confdir.Reader) (content, error) {
	data, err := read(file, limit.ConfigFile)
	if err != nil {
		return content{}, words().Unreadable(file, err)
	}
	t, doc := tenant.Read(file, data)
	if t != nil && o.Hubs != nil {
		t.KnowsHubs(o.Hubs, doc.Add)
	}
	return content{t, data}, doc.Err()
}

func (f *Files) apply(c confdir.Change[content]) confdir.Outcome {
	out, changed := f.book.apply(c)
	f.tenants.Store(int64(len(f.book.has)))
	if changed > 0 {
		f.Reloaded(nil)
		f.Log.Info("tenants loaded", "tenants", len(f.book.has), "changed", changed)
	}
	return out
}

// Status may be called while files are read.
func (f *Files) Status() Status { return Status{f.Files.Status(), int(f.tenants.Load())} }

// refusal is the fault of a file whose tenant claims what others have.
func refusal(file string, text []byte, claims []tenant.Claim, owner map[string]string) error {
	const shown = 20
	_, doc := tenant.Read(file, text)
	var lines []string
	for i, c := range claims {
		if i == shown {
			lines = append(lines, fmt.Sprintf("and %d more", len(claims)-i))
			break
		}
		said := fmt.Sprintf("%s is claimed by tenant %q of %s", c.What, c.Other, owner[c.Other])
		lines = append(lines, doc.Place(c.Path, said).String())
	}
	return fault.Newf(fault.CodeConfig, "the tenant %s claims what another one has", file).
		Whyf("\n  %s", strings.Join(lines, "\n  ")).
		Hint("remove it from one of the files; the tenant that had it first keeps it until then")
}
