// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Port is a listener that leads to a port of the hub.
type Port struct {
	Name   string
	Listen netip.AddrPort
	From   *policy.Policy // the sources that may connect
}

func (p Port) equal(o Port) bool {
	return p.Name == o.Name && p.Listen == o.Listen && p.From.Digest() == o.From.Digest()
}

func parsePorts(raw []v1alpha1.AgentPortConfig, health string, add conf.Report) (out []Port) {
	taken := map[netip.AddrPort]string{}
	if at, err := netip.ParseAddrPort(health); err == nil {
		taken[at] = "healthListen"
	}
	for i, rp := range raw {
		at := fmt.Sprintf("ports[%d]", i)
		p := Port{Name: rp.Name}
		if err := wire.CheckPort(rp.Name); err != nil {
			add(at+".name", "%v", err)
		}
		var err error
		p.Listen, err = netip.ParseAddrPort(rp.Listen)
		switch other, twice := taken[p.Listen]; {
		case err != nil || p.Listen.Addr().Zone() != "":
			add(at+".listen", "%q is not ADDRESS:PORT, such as 127.0.0.1:5000", rp.Listen)
		case twice && p.Listen.Port() != 0: // for 0 the kernel chooses
			add(at+".listen", "%s listens at %s already", other, rp.Listen)
		case !p.Listen.Addr().Unmap().IsLoopback() && len(rp.From) == 0:
			add(at+".from", "it is missing: beyond loopback, say which sources may connect to %s", rp.Listen)
		}
		taken[p.Listen] = at
		p.From = sources(rp.From, at, add)
		out = append(out, p)
	}
	return out
}

// sources are those that may connect, as a policy: to be decided about like all that may be reached.
func sources(texts []string, at string, add conf.Report) *policy.Policy {
	if texts == nil {
		texts = []string{"127.0.0.0/8", "::1"}
	}
	p, problems := policy.Compile([]policy.Rule{{
		Name: "from", Flow: []string{policy.FlowBack}, Source: texts, Destination: []string{"*"},
	}}, nil)
	for _, problem := range problems {
		add(strings.Replace(problem.Path, "rules[0].sources", at+".from", 1), "%s", problem.Message)
	}
	return p
}

// admits reports whether a source may connect.
func (p Port) admits(from netip.Addr) bool {
	return from.IsValid() && policy.Decide(policy.Request{Flow: policy.FlowBack, Source: from, Name: p.Name}, p.From).Allow
}
