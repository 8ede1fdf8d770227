// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Options are what Files need.
type Options struct {
	Paths    func() []string // files and folders, as they are configured now
	Some     bool            // what no rule names is open: without any good file the last ones stay
	Table    *authz.Table    // where the policy is put into force
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a change, nil, or what was refused
}

// Files are the files of the policy.
type Files struct {
	*confdir.Files[content]

	table *authz.Table
	read  confdir.Reader // of the file system
	rules map[string]int // in force, by file
	total atomic.Int64   // rules of all of them
}

// content is that of one good file.
type content struct {
	*policy.Policy
	warnings []policy.Finding
}

// New makes Files that have read nothing yet.
func New(o Options) *Files {
	p := &Files{table: o.Table, read: readBounded, rules: map[string]int{}}
	p.Files = confdir.New(confdir.Options[content]{
		Words: words(), Paths: o.Paths, Some: o.Some, Read: p.content, Apply: p.apply, Log: o.Log, Now: o.Now,
		Reloaded: o.Reloaded, Disk: func(path string, most int64) ([]byte, error) { return p.read(path, most) },
	})
	return p
}

func (p *Files) content(file string, reader confdir.Reader) (content, error) {
	compiled, findings, err := read(file, reader)
	if err != nil {
		return content{}, err
	}
	return content{compiled, findings}, Fault(file, findings)
}

// apply puts changed files into force.
func (p *Files) apply(c confdir.Change[content]) confdir.Outcome {
	changed, total := map[string]*policy.Policy{}, p.total.Load()
	for _, file := range slices.Sorted(maps.Keys(c.Good)) {
		good := c.Good[file]
		p.warn(good.warnings)
		total += int64(good.Size() - p.rules[file])
		changed[file], p.rules[file] = good.Policy, good.Size()
	}
	for _, file := range c.Gone {
		if rules, known := p.rules[file]; known {
			total -= int64(rules)
			changed[file] = nil
			delete(p.rules, file)
		}
	}
	if set := len(c.Paths) > 0; len(changed) > 0 || set != p.table.Configured() {
		p.end(p.table.Replace(set, changed))
		p.Reloaded(nil)
		p.Log.Info("policy loaded", "files", len(p.rules), "changed", len(changed))
	}
	p.total.Store(total)
	return confdir.Outcome{}
}

func (p *Files) warn(findings []policy.Finding) {
	for _, f := range findings {
		if f.Warning {
			p.Log.Warn("policy", telemetry.AttrReason, f.String())
		}
	}
}

// end ends streams that a changed policy refuses, each with the ruling in its record.
func (p *Files) end(refused []authz.Overruled) {
	for _, r := range refused {
		q := r.Request()
		p.Log.Debug("a stream ends that the changed policy refuses", telemetry.AttrCluster, q.Cluster,
			telemetry.AttrTarget, authz.Destination(q),
			telemetry.AttrCaller, q.Caller, telemetry.AttrReason, r.Ruling.Why())
		r.Overrule(r.Ruling)
	}
	if len(refused) > 0 {
		p.Log.Info("streams ended that the changed policy refuses", "streams", len(refused),
			"version", p.table.Whole().String())
	}
}

// Status says for the metrics and the admin API what is in force. It may be called while files are read.
func (p *Files) Status() admin.PolicyStatus {
	st := p.Files.Status()
	out := admin.PolicyStatus{Files: st.Files, Rules: int(p.total.Load())}
	if len(st.Refusals) > 0 {
		newest := admin.PolicyRefusal(st.Refusals[0])
		out.Refusal = &newest
	}
	return out
}
