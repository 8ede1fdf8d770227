// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// appliedFile is in the state directory.
const appliedFile = "applied"

// appliedVersion is that of the file.
const appliedVersion = 1

// Applied are the names under which this node may have something in the kernel, and who it
// is there. It is on disk before anything bears a name: what a killed run has left under
// names that have changed since is found by it.
type Applied struct {
	Owner string         // of tables of nftables: this state directory's, drawn once
	Names []kernel.Names // the newest last
}

// appliedText is how it stands in the file.
type appliedText struct {
	Version int           `json:"version"`
	Owner   string        `json:"owner"`
	Names   []appliedName `json:"names"`
}

type appliedName struct {
	Link   string `json:"link"`
	Filter string `json:"filter"`
	Table  int    `json:"table"`
}

// ReadApplied reads what the last run has written. Without a file there was none, and an
// owner is drawn. So it is for one that cannot be read, with why as a fault that hinders nothing
// but the removal of what has earlier names.
func ReadApplied(dir string) (a Applied, broken error) {
	path := filepath.Join(dir, appliedFile)
	text, err := private.ReadPublic(path, limit.PrivateFile)
	if err == nil {
		if a, err = parseApplied(text); err == nil {
			return a, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		broken = nil
	} else {
		code := fault.CodeStateCorrupt
		if errors.Is(err, errNewer) {
			code = fault.CodeStateVersion
		}
		broken = fault.New(code, "the names in "+path+" cannot be read").Because(err).
			Hint("if mesh.link, mesh.filter or mesh.table was changed since a run that was killed, " +
				"'tombolo mesh down' with the earlier file removes what that run left")
	}
	id := make([]byte, plan.OwnerDigits/2)
	if _, err := rand.Read(id); err != nil {
		return Applied{}, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return Applied{Owner: hex.EncodeToString(id)}, broken
}

var (
	errNewer   = errors.New("a newer version of Tombolo has written it")
	errForeign = errors.New("it is none of ours")
)

// parseApplied reads a file. What nobody may configure is in none: by table 254 the machine's
// own routes would be looked through.
func parseApplied(text []byte) (Applied, error) {
	var in appliedText
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&in); err != nil {
		return Applied{}, err
	}
	switch {
	case in.Version > appliedVersion:
		return Applied{}, errNewer
	case in.Version != appliedVersion || d.More() || len(in.Names) > meshApplied:
		return Applied{}, errForeign
	}
	if id, err := hex.DecodeString(in.Owner); err != nil || hex.EncodeToString(id) != in.Owner ||
		len(in.Owner) != plan.OwnerDigits {
		return Applied{}, errForeign
	}
	out := Applied{Owner: in.Owner}
	for _, n := range in.Names {
		o := topology.Defaults()
		o.Link, o.Filter, o.Table = n.Link, n.Filter, n.Table
		if n.Filter == "" || len(n.Filter) > limit.MeshFilter || len(o.Check()) > 0 {
			return Applied{}, errForeign
		}
		out.Names = append(out.Names, Names(o))
	}
	return out, nil
}

// Write keeps it on disk, durably.
func (a Applied) Write(dir string) error {
	out := appliedText{Version: appliedVersion, Owner: a.Owner, Names: []appliedName{}}
	for _, n := range a.Names {
		out.Names = append(out.Names, appliedName{n.Link, n.Filter, n.Table})
	}
	text, err := json.Marshal(out)
	if err != nil {
		return fault.New(fault.CodeInternal, "the names are not encoded").Because(err)
	}
	path := filepath.Join(dir, appliedFile)
	if err := store.Write(path, append(text, '\n')); err != nil {
		return fault.New(fault.CodeStateAccess, "the names that the mesh has in the kernel are not kept").Because(err).
			Hint("see that there is room and permission for %s", path)
	}
	return nil
}

// Others says whether there are names beside those that count now.
func (a Applied) Others(now kernel.Names) bool {
	return slices.ContainsFunc(a.Names, func(n kernel.Names) bool { return n != now })
}

// With is what may be in the kernel once these names are applied too. Of more than there is
// room for the oldest are forgotten.
func (a Applied) With(now kernel.Names) (out Applied, forgotten []kernel.Names) {
	out.Owner = a.Owner
	out.Names = append(slices.DeleteFunc(slices.Clone(a.Names), func(n kernel.Names) bool { return n == now }), now)
	if n := len(out.Names) - meshApplied; n > 0 {
		return Applied{out.Owner, out.Names[n:]}, out.Names[:n]
	}
	return out, nil
}

// Only is what is in the kernel when all else was removed.
func (a Applied) Only(now ...kernel.Names) Applied { return Applied{a.Owner, now} }

// Former are the names whose objects are to be removed: earlier ones that have changed,
// but for what another mesh on this machine claims.
//
//	the table of nftables   if it says that it is this node's, and nobody else says so
//	the table of routes     unless another mesh's table says that it uses that
//	the link                the same
//
// Where another mesh, which does not say what it uses, has made the table again, all of the
// names may be its own by now.
func (a Applied) Former(now kernel.Names, claims []plan.Claim) []kernel.Names {
	others := slices.DeleteFunc(slices.Clone(claims), func(c plan.Claim) bool { return c.Owner == a.Owner })
	claimed := func(is func(plan.Claim) bool) bool { return slices.ContainsFunc(others, is) }
	var out []kernel.Names
	for _, n := range a.Names {
		if claimed(func(c plan.Claim) bool { return c.Filter == n.Filter && c.Owner == "" }) {
			continue
		}
		left := kernel.Names{Protocol: n.Protocol, Former: true}
		ours := slices.ContainsFunc(claims, func(c plan.Claim) bool { return c.Filter == n.Filter && c.Owner == a.Owner })
		if n.Filter != now.Filter && ours && !claimed(func(c plan.Claim) bool { return c.Filter == n.Filter }) {
			left.Filter = n.Filter
		}
		if n.Table != now.Table && !claimed(func(c plan.Claim) bool { return c.Table == n.Table }) {
			left.Table = n.Table
		}
		if n.Link != now.Link && !claimed(func(c plan.Claim) bool { return c.Link == n.Link }) {
			left.Link = n.Link
		}
		if left.Filter != "" || left.Table != 0 || left.Link != "" {
			out = append(out, left)
		}
	}
	return out
}

// strange is why what has these names must not be removed for this state directory: it has other
// names, and another one's mesh says that these are its own.
func (a Applied) strange(names kernel.Names, claims []plan.Claim) error {
	if len(a.Names) == 0 || slices.Contains(a.Names, names) {
		return nil
	}
	at := slices.IndexFunc(claims, func(c plan.Claim) bool { return c.Filter == names.Filter })
	if at < 0 || claims[at].Owner == "" || claims[at].Owner == a.Owner {
		return nil
	}
	return fault.New(fault.CodeClash, "table inet "+names.Filter+" of nftables").
		Whyf("it is that of a mesh with another state directory").
		Hint("give the configuration of the mesh that is to go with --config")
}
