// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const portsConfig = "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"

func portsOf(t *testing.T, text string) ports {
	t.Helper()
	cfg, err := ParseConfig("hub.yaml", []byte(portsConfig+"ports:\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.ports
}

func TestPortsThatAreRefused(t *testing.T) {
	if n := len(DefaultConfig().ports); n != 0 {
		t.Errorf("%d ports by default", n)
	}
	_, err := ParseConfig("hub.yaml", []byte(portsConfig+`ports:
- {name: registry, target: 10.0.0.5:5000, clusters: [c1]}
- {name: registry, target: 10.0.0.6:5000, clusters: ["*"]}
- {name: Registry, target: nowhere, clusters: []}
- {target: "169.254.169.254:80", clusters: ["c*", "a*b*", ""]}
- {name: a, target: "[fe80::1]:80", clusters: [c1]}
- {name: b, target: "0.0.0.0:80", clusters: [c1]}
- {name: c, target: "[64:ff9b::a9fe:a9fe]:80", clusters: [c1]}
- {name: d, target: "127.0.0.1:5000", clusters: [c1]}
- {name: e, target: "registry.example:5000", clusters: [c1]}
`))
	for _, want := range []string{
		`ports[1].name: ports[0] has the name "registry" already`, `ports[2].name: name "Registry" may have`,
		"ports[2].target: destination \"nowhere\"", "ports[2].clusters: it is empty", "ports[3].name: the name is missing",
		"ports[3].target: 169.254.169.254:80 is a cloud metadata service", "ports[3].clusters[1]: ", "ports[3].clusters[2]: ",
		"ports[4].target: [fe80::1]:80 is a link-local address", "ports[5].target: 0.0.0.0:80 is an address of this network",
		"ports[6].target: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	for _, good := range []string{"ports[0]", "ports[7]", "ports[8]"} {
		if strings.Contains(fmt.Sprint(err), good+".") {
			t.Errorf("%s is refused: %v", good, err)
		}
	}
}

func TestWhoHasAPort(t *testing.T) {
	ps := portsOf(t, `
- {name: registry, target: 10.0.0.5:5000, clusters: [c1, "shoot-*"]}
- {name: time, target: "time.example:123", clusters: ["*"]}
- {name: only-two, target: 10.0.0.7:1, clusters: [c2]}
`)
	for ask, target := range map[string]string{
		"c1/registry": "10.0.0.5:5000", "shoot-a/registry": "10.0.0.5:5000", "c1/time": "time.example:123", "c2/only-two": "10.0.0.7:1",
		"c2/registry": "", "c1/only-two": "", "c1/none": "", "c1/": "", "shoot/registry": "", "c11/registry": "",
	} {
		cluster, name, _ := strings.Cut(ask, "/")
		p, f := ps.find(cluster, name)
		switch {
		case target != "" && (f != nil || p.target.String() != target):
			t.Errorf("%s: %v, %v", ask, p, f)
		case target == "" && !fault.Has(f, fault.CodePolicyDenied):
			t.Errorf("%s: %v, %v", ask, p, f)
		}
	}
	_, none := ps.find("c1", "none")
	_, others := ps.find("c1", "only-two")
	if none.Explain() != others.Explain() {
		t.Errorf("a name is told from one that others have: %s, %s", none.Explain(), others.Explain())
	}
	if _, f := (ports)(nil).find("c1", "registry"); !fault.Has(f, fault.CodePolicyDenied) {
		t.Error(f)
	}
}

func TestWhereNoPortLeads(t *testing.T) {
	own := []policy.Listener{
		{At: netip.MustParseAddrPort("10.0.0.1:8443"), Of: policy.ListenerOfHub}, {At: netip.MustParseAddrPort("0.0.0.0:8444"), Of: policy.ListenerOfHub},
	}
	name, loopback := policy.Target{Name: "a.example", Port: 1}, policy.Target{Addr: netip.MustParseAddr("127.0.0.1"), Port: 1}
	for _, c := range []struct {
		at     string
		target policy.Target
		may    bool
	}{
		{"10.0.0.1:8443", name, false}, {"10.0.0.1:8442", name, true}, {"10.0.0.2:8443", name, true}, {"127.0.0.9:8444", loopback, false},
		{"[::ffff:10.0.0.1]:8443", name, false}, {"127.0.0.1:80", name, false}, {"127.0.0.1:80", loopback, true}, {"127.0.0.2:80", loopback, false},
		{"[::ffff:127.0.0.1]:80", loopback, true}, {"169.254.169.254:80", name, false}, {"[::1]:80", loopback, false}, {"[fd00::1]:80", name, true},
	} {
		if why := forbidden(netip.MustParseAddrPort(c.at), c.target, own); (why == "") != c.may {
			t.Errorf("%s for %s: %q", c.at, c.target, why)
		}
	}
	ps := portsOf(t, "- {name: a, target: \"a.example:8443\", clusters: [c1]}\n- {name: b, target: \"10.0.0.1:8443\", clusters: [c1]}\n")
	if err := ps.checkOwn(own); !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), "ports[1].target") {
		t.Error(err)
	}
	if err := ps.checkOwn(own[1:]); err != nil {
		t.Error(err)
	}
}
