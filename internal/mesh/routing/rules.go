// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Rules are a policy between peers, read from files and good for any peers.
type Rules struct {
	cluster  string
	files    []string
	policies []*policy.Policy
}

// ReadAccess reads files of kind AccessPolicy for the peers of a cluster. All that is
// wrong with any of them is reported, each with file:line:column. Without a file there is no
// policy: nil.
func ReadAccess(files []string, cluster string) (*Rules, error) {
	rules, _, err := readAccess(files, cluster)
	return rules, err
}

// readAccess gives the files that were read, too, with the lists that they name.
func readAccess(files []string, cluster string) (_ *Rules, read []string, err error) {
	if len(files) == 0 {
		return nil, nil, nil
	}
	read = slices.Clone(files)
	out := &Rules{cluster: cluster, files: slices.Clone(files)}
	var wrong []string
	for _, file := range files {
		p, lists, problems := readPolicy(cluster, file)
		wrong = append(wrong, problems...)
		read = append(read, lists...)
		out.policies = append(out.policies, p)
	}
	if len(wrong) == 0 {
		for _, p := range policy.LowerAny(cluster, out.policies...) {
			wrong = append(wrong, strings.Join(files, ", ")+": "+p.Message)
		}
	}
	if n := len(wrong); n > 0 {
		if wrong = wrong[:min(n, limit.PoliciesTold)]; n > len(wrong) {
			wrong = append(wrong, fmt.Sprintf("and %d more", n-len(wrong)))
		}
		return nil, read, fault.New(fault.CodeConfig, "the policy between peers has problems").
			Whyf("\n  %s", strings.Join(wrong, "\n  ")).Hint("correct the lines named")
	}
	return out, read, nil
}

func readPolicy(cluster, file string) (_ *policy.Policy, lists, wrong []string) {
	data, err := readWhole(file, limit.ConfigFile)
	if err != nil {
		return nil, nil, []string{fmt.Sprintf("%s: it cannot be read: %v", file, err)}
	}
	p, findings := policy.ReadBetweenPeers(cluster, file, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		lists = append(lists, path)
		return readWhole(path, limit.PolicyList)
	})
	for _, f := range findings {
		if !f.Warning {
			wrong = append(wrong, f.Problem.String())
		}
	}
	return p, lists, wrong
}

// readWhole reads a file of at most so many bytes.
func readWhole(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	}
	data, err := readHead(path, most+1)
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("at most %d bytes are read", most)
	}
	return data, err
}

// Size is the number of rules.
func (r *Rules) Size() (n int) {
	for _, p := range r.policies {
		n += p.Size()
	}
	return n
}

// Access lowers the rules for peers.
func (r *Rules) Access(parties []policy.Party) (*topology.Access, error) {
	low, problems := policy.Lower(r.cluster, parties, r.policies...)
	if len(problems) > 0 {
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Message)
		}
		return nil, fault.New(fault.CodeConfig, "the policy between peers").Whyf("%s", strings.Join(texts, "; "))
	}
	return &topology.Access{Sets: low.Sets, Lines: low.Lines}, nil
}

// parties are the peers that have a name, by the ranges that only they have, and their
// own addresses, from which nobody else's packets come either.
func parties(peers topology.Peers, caller func(topology.Peer) string) []policy.Party {
	if caller == nil {
		return nil
	}
	var out []policy.Party
	for _, p := range peers {
		if name := caller(p); name != "" {
			out = append(out, policy.Party{Caller: name, Ranges: slices.Concat(p.Allowed, p.Sources)})
		}
	}
	return out
}

// lowered is what was made of rules the last time.
type lowered struct {
	rules   *Rules
	parties []policy.Party
	access  *topology.Access
}

// renew lowers again if the rules, or the peers with a name, have changed.
// What cannot be lowered lets nothing in.
func (l *lowered) renew(rules *Rules, parties []policy.Party) (f *fault.Fault, changed bool) {
	if l.access != nil && l.rules == rules && reflect.DeepEqual(l.parties, parties) {
		return nil, false
	}
	access, err := rules.Access(parties)
	if err != nil {
		access = &topology.Access{}
	}
	l.rules, l.parties, l.access = rules, parties, access
	return fault.From(err), true
}

// accessChain is topology's chain of the policy.
const accessChain = "access"
