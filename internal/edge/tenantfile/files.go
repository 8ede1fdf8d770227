// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"fmt"
	"log/slog"
	"strings"
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
	Table    *tenant.Table   // only these files change it, unless there is a Book
	Book     *Book           // shared with other sources; nil: of the table alone
	Hubs     []string        // that tenants may name; nil: any
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a change, nil, or a file that is refused
}

// Files are the files of the tenants.
type Files struct {
	*confdir.Files[content]

	book *Book
	disk confdir.Reader
}

// files is the source of tenants that files are.
const files = ""

// content is that of one good file.
type content struct {
	*tenant.Tenant
	text []byte // to find places in, if others have what the tenant claims
}

// Status is what an edge knows about its tenants.
type Status struct {
	confdir.Status

	Tenants int    // in force
	Away    string // why the source says nothing now; empty: it does
}

// New makes Files that have read nothing yet.
func New(o Options) *Files {
	f := &Files{book: o.Book, disk: confdir.ReadDisk}
	if f.book == nil {
		f.book = NewBook(o.Table)
	}
	f.book.join(files, func() { f.Moved() }) // which reads refused files again
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
	return parse(file, data, o.Hubs)
}

// parse reads a tenant that names none but the hubs; nil: any.
func parse(file string, data []byte, hubs []string) (content, error) {
	t, doc := tenant.Read(file, data)
	if t != nil && hubs != nil {
		t.KnowsHubs(hubs, doc.Add)
	}
	return content{t, data}, doc.Err()
}

func (f *Files) apply(c confdir.Change[content]) confdir.Outcome {
	out := f.book.apply(files, c.Good, c.Gone)
	if out.changed > 0 {
		f.Reloaded(nil)
		f.Log.Info("tenants loaded", "tenants", f.book.count(files), "changed", out.changed)
	}
	return confdir.Outcome{Refused: out.refused, Again: out.again}
}

// Status may be called while files are read.
func (f *Files) Status() Status {
	return Status{Status: f.Files.Status(), Tenants: f.book.count(files)}
}

// refusal is the fault of a file whose tenant claims what others have.
func refusal(file string, text []byte, claims []tenant.Claim, owner map[string]place) error {
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
		Hint("remove it from one of them; the tenant that had it first keeps it until then")
}
