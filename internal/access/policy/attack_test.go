// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// spellings are ways to write a destination that a check and a connect may
// understand differently. Each is refused as text, or means one address or name.
var spellings = []struct{ text, address, name string }{
	{"10.96.7.9", "10.96.7.9", ""},
	{"[::ffff:10.96.7.9]", "10.96.7.9", ""}, // IPv4-mapped is IPv4
	{"[::ffff:a60:709]", "10.96.7.9", ""},
	{"[0:0:0:0:0:FFFF:0a60:0709]", "10.96.7.9", ""},
	{"[64:ff9b::a60:709]", "64:ff9b::a60:709", ""}, // NAT64
	{"[64:ff9b::10.96.7.9]", "64:ff9b::a60:709", ""},
	{"[64:ff9b:1::a60:709]", "64:ff9b:1::a60:709", ""},                                     // NAT64 for local use, each length
	{"[64:ff9b:1:a60:7:900::]", "64:ff9b:1:a60:7:900::", ""},                               // /48
	{"[64:ff9b:1:a:60:709::]", "64:ff9b:1:a:60:709::", ""},                                 // /56
	{"[64:ff9b:1:0:a:6007:900:0]", "64:ff9b:1:0:a:6007:900:0", ""},                         // /64
	{"[2002:a60:709::1]", "2002:a60:709::1", ""},                                           // 6to4
	{"[2001:0:4136:e378:8000:63bf:f59f:f8f6]", "2001:0:4136:e378:8000:63bf:f59f:f8f6", ""}, // Teredo
	{"[::a60:709]", "::a60:709", ""},                                                       // IPv4-compatible
	{"[::10.96.7.9]", "::a60:709", ""},                                                     //
	{"[::ffff:0:a60:709]", "::ffff:0:a60:709", ""},                                         // IPv4-translated
	{"[::ffff:10.96.7.9%eth0]", "", ""},
	{"[fe80::1%eth0]", "", ""},
	{"10.96.7.9%eth0", "", ""},
	{"012.0140.07.011", "", ""}, // octal
	{"10.96.7.09", "", ""},
	{"0xa.0x60.0x7.0x9", "", ""}, // hexadecimal
	{"0x0a600709", "", ""},
	{"0X0A600709.", "", ""},
	{"174065417", "", ""}, // one number
	{"10.96.1801", "", ""},
	{"10.6293257", "", ""},
	{"10.96.7.9.", "", ""},
	{"１０.96.7.9", "", ""}, // full-width digits
	{"10。96。7。9", "", ""}, // ideographic full stops
	{"db.example.com", "", "db.example.com"},
	{"DB.Example.COM", "", "db.example.com"},
	{"db.example.com.", "", "db.example.com"},
	{"DB.EXAMPLE.COM.", "", "db.example.com"},
	{"db.example.com..", "", ""},
	{"db.example.com:80@evil", "", ""},
	{"db\u200b.example.com", "", ""},    // a space of no width
	{"ⅾb.example.com", "", ""},          // a Roman numeral that looks like d
	{"ԁb.example.com", "", ""},          // a Cyrillic letter
	{"db.exаmple.com", "", ""},          // another one
	{"ＤＢ.example.com", "", ""},          // full-width letters
	{"db%2eexample.com", "", ""},        // an escape
	{"db.example.com\x00.evil", "", ""}, // a NUL
	{"db.example.com .evil", "", ""},    // a space
	{"[db.example.com]", "", "db.example.com"},
}

// TestOneDestinationInEverySpelling holds a deny and an allow rule to all of them: what
// a deny rule names is not reached by any, what an allow rule names by no other address.
func TestOneDestinationInEverySpelling(t *testing.T) {
	everything := policy.Rule{Name: "all", Destination: []string{"*", "0.0.0.0/0", "::/0", "*.com"}}
	denies := []policy.Rule{
		{Name: "address", Deny: true, Destination: []string{"10.96.7.9"}},
		{Name: "range", Deny: true, Destination: []string{"10.96.7.0/24:443"}},
		{Name: "mapped", Deny: true, Destination: []string{"[::ffff:10.96.7.9]:443"}},
	}
	names := []policy.Rule{
		{Name: "name", Deny: true, Destination: []string{"db.example.com"}},
		{Name: "shouted", Deny: true, Destination: []string{"DB.Example.COM.:443"}},
		{Name: "wild", Deny: true, Destination: []string{"*.EXAMPLE.com."}},
	}
	for _, c := range spellings {
		target, err := policy.ParseTarget(c.text + ":443")
		if refused := c.address == "" && c.name == ""; refused != (err != nil) {
			t.Errorf("%q was read as %v, %v", c.text, target, err)
		}
		if err != nil {
			continue
		}
		if target.Name != c.name || c.address != "" && target.Addr != netip.MustParseAddr(c.address) {
			t.Errorf("%q was read as %+v", c.text, target)
		}
		q := policy.Request{Cluster: "c1", Flow: policy.FlowDial, Name: target.Name, Addr: target.Addr, Port: target.Port}
		against := denies
		if target.Name != "" {
			against = names
			unresolved := q // a name that is denied is never asked of a resolver
			for _, deny := range names {
				if v := policy.Decide(unresolved, accessOf(t, everything, deny)); v.Open || v.Allow || v.Rule != deny.Name {
					t.Errorf("%q is open although %s denies it: %+v", c.text, deny.Name, v)
				}
			}
			q.Addr = netip.MustParseAddr("10.1.1.1")
		}
		for _, deny := range against {
			if v := policy.Decide(q, accessOf(t, everything, deny)); v.Allow || v.Rule != deny.Name {
				t.Errorf("%q: %s does not deny it: %+v", c.text, deny.Name, v)
			}
		}
		if v := policy.Decide(q, accessOf(t, everything)); !v.Allow {
			t.Errorf("%q without a deny rule: %s", c.text, v.Why())
		}
		// An allow rule for the IPv4 address opens that address, not what carries it.
		if target.Addr.IsValid() {
			v := policy.Decide(q, accessOf(t, policy.Rule{Name: "one", Destination: []string{"10.96.7.9:443"}}))
			if v.Allow != (target.Addr == netip.MustParseAddr("10.96.7.9")) {
				t.Errorf("%q with an allow rule for 10.96.7.9: %+v", c.text, v)
			}
		}
	}
}

func accessOf(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems)
	}
	return p
}

// TestANodesAddressThatPointsElsewhere is CVE-2022-3294: whoever may write a Node
// makes kube-apiserver dial an address of his choice. The rule for kubelets is wider
// than it should be; nothing that a control plane has to hide is behind it.
func TestANodesAddressThatPointsElsewhere(t *testing.T) {
	p := accessOf(t, policy.Rule{Name: "kubelets", Destination: []string{"0.0.0.0/0", "::/0", "*"}})
	var own []policy.Listener
	for _, at := range []string{"10.0.0.5:8443", "[fd00::5]:8443", "10.0.0.5:8444"} {
		own = append(own, policy.Listener{At: netip.MustParseAddrPort(at), Of: policy.ListenerOfHub})
	}
	for _, at := range []string{
		"169.254.169.254:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::]:80",
		"[::a9fe:a9fe]:80", "[2001:0:4136:e378:8000:63bf:5601:5601]:80", "100.100.100.200:80", "168.63.129.16:32526",
		"127.0.0.1:10250", "[::1]:10250", "[::ffff:127.0.0.1]:10250", "[64:ff9b::7f00:1]:10250", "[::7f00:1]:10250", "[2002:7f00:1::]:10250",
		"0.0.0.0:10250", "[::]:10250", "[::ffff:0.0.0.0]:10250", "[fe80::1]:10250", "224.0.0.1:10250", "255.255.255.255:10250",
		"10.0.0.5:8443", "[::ffff:10.0.0.5]:8443", "[fd00::5]:8443", "10.0.0.5:8444", "[64:ff9b::a00:5]:8443", "[64:ff9b:1::a00:5]:8443",
		"[2001:db8::5efe:a9fe:a9fe]:80", "[2001:db8::200:5efe:7f00:1]:10250", "[64:ff9b:1::a9fe:a9fe]:80", "[64:ff9b:1:a9fe:0:a9fe::]:80",
	} {
		target, err := policy.ParseTarget(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "node-1.example"} { // also behind a name
			q := policy.Request{Cluster: "c1", Flow: policy.FlowDial, Name: name, Addr: target.Addr, Port: target.Port, Own: own}
			if v := policy.Decide(q, p); v.Allow || v.Open || v.Why() == "" {
				t.Errorf("%s (%q): %+v", at, name, v)
			}
		}
	}
}

// TestAnAnswerThatChanges is CVE-2020-8562: a name is good when it is checked and bad
// when it is dialled. A verdict holds for one address; without it there is none.
func TestAnAnswerThatChanges(t *testing.T) {
	p := accessOf(t,
		policy.Rule{Name: "names", Destination: []string{"*.example"}},
		policy.Rule{Name: "not-there", Deny: true, Destination: []string{"10.96.7.0/24"}})
	q := policy.Request{Cluster: "c1", Flow: policy.FlowDial, Name: "rebound.example", Port: 443}
	if v := policy.Decide(q, p); v.Allow || !v.Open {
		t.Errorf("a name alone: %+v", v)
	}
	for addr, allow := range map[string]bool{
		"192.0.2.1": true, "10.96.7.1": false, "127.0.0.1": false, "169.254.169.254": false, "::1": false,
		"::ffff:10.96.7.1": false, "64:ff9b::a60:701": false, "2002:a60:701::1": false, "::a60:701": false, "::ffff:127.0.0.1": false,
	} {
		q.Addr = netip.MustParseAddr(addr)
		if v := policy.Decide(q, p); v.Allow != allow || v.Open {
			t.Errorf("%s: %+v, want allow=%v", addr, v, allow)
		}
	}
}
