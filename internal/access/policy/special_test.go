// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

func decide(p *policy.Policy, addr string, port uint16, own ...string) policy.Verdict {
	q := policy.Request{Addr: netip.MustParseAddr(addr), Port: port}
	for _, o := range own {
		q.Own = append(q.Own, policy.Listener{At: netip.MustParseAddrPort(o), Of: policy.ListenerOfAgent})
	}
	return policy.Decide(q, p)
}

func TestNothingIsAllowedByDefault(t *testing.T) {
	var zero *policy.Policy
	for name, v := range map[string]policy.Verdict{
		"no rules":           decide(zero, "10.0.0.1", 443),
		"no matching rule":   decide(compile(t, "10.0.0.0/8"), "11.0.0.1", 443),
		"no address":         policy.Decide(policy.Request{Port: 443}, compile(t, "0.0.0.0/0", "::/0")),
		"no port":            decide(compile(t, "0.0.0.0/0"), "10.0.0.1", 0),
		"a name, no address": policy.Decide(policy.Request{Name: "a.example", Port: 443}, compile(t, "a.example")),
	} {
		if v.Allow || v.Rule != "" || v.Why() == "" {
			t.Errorf("%s: %+v, want a refusal with a reason", name, v)
		}
	}
}

// TestAWideRuleDoesNotOpenSpecialAddresses asks for each with everything allowed;
// the second column is a rule that does open it.
func TestAWideRuleDoesNotOpenSpecialAddresses(t *testing.T) {
	wide := []string{"0.0.0.0/0", "::/0", "*.example", "name.example", "128.0.0.0/1", "8000::/1", "0.0.0.0/1", "::/1"}
	for name, c := range map[string]struct{ addr, opens string }{
		"loopback":                             {"127.0.0.1", "127.0.0.0/8"},
		"another loopback address":             {"127.200.3.4", "127.200.0.0/16"},
		"loopback of IPv6":                     {"::1", "::1"},
		"loopback in its mapped form":          {"::ffff:127.0.0.1", "127.0.0.1"},
		"link-local":                           {"169.254.1.1", "169.254.0.0/16"},
		"link-local of IPv6":                   {"fe80::1", "fe80::/10"},
		"link-local of IPv6 with a zone":       {"fe80::1%eth0", "fe80::/64"},
		"metadata":                             {"169.254.169.254", "169.254.169.254"},
		"metadata in its mapped form":          {"::ffff:169.254.169.254", "169.254.169.254"},
		"metadata of AWS on IPv6":              {"fd00:ec2::254", "fd00:ec2::254"},
		"credentials of ECS tasks":             {"169.254.170.2", "169.254.170.2"},
		"credentials of EKS pods":              {"169.254.170.23", "169.254.170.23/32"},
		"credentials of EKS pods on IPv6":      {"fd00:ec2::23", "fd00:ec2::23"},
		"metadata of Alibaba":                  {"100.100.100.200", "100.100.100.200"},
		"the wire server of Azure":             {"168.63.129.16", "168.63.129.16"},
		"metadata of Oracle":                   {"192.0.0.192", "192.0.0.192"},
		"metadata of GCP on IPv6":              {"fd20:ce::254", "fd20:ce::254"},
		"multicast":                            {"239.1.2.3", "239.0.0.0/8"},
		"multicast of IPv6":                    {"ff02::1", "ff00::/8"},
		"the unspecified address":              {"0.0.0.0", "0.0.0.0/8"},
		"the unspecified address of IPv6":      {"::", "::"},
		"this network":                         {"0.1.2.3", "0.0.0.0/8"},
		"broadcast":                            {"255.255.255.255", "255.255.255.255"},
		"metadata through NAT64":               {"64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"},
		"loopback through NAT64":               {"64:ff9b::7f00:1", "64:ff9b::7f00:1"},
		"metadata through local NAT64, /48":    {"64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9fe:a9:fe00::"},
		"metadata through local NAT64, /56":    {"64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:a9:fe:a9fe::"},
		"metadata through local NAT64, /64":    {"64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1:0:a9:fea9:fe00:0"},
		"metadata through local NAT64, /96":    {"64:ff9b:1::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe"},
		"loopback through local NAT64, /48":    {"64:ff9b:1:7f00:0:100::", "64:ff9b:1:7f00:0:100::"},
		"loopback through local NAT64, /96":    {"64:ff9b:1:abcd::7f00:1", "64:ff9b:1:abcd::7f00:1"},
		"nothing through local NAT64":          {"64:ff9b:1::", "64:ff9b:1::"},
		"metadata through 6to4":                {"2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1"},
		"loopback through 6to4":                {"2002:7f00:1::1", "2002:7f00:1::1"},
		"metadata through Teredo":              {"2001:0:4136:e378:8000:63bf:5601:5601", "2001:0:4136:e378:8000:63bf:5601:5601"},
		"loopback through Teredo":              {"2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:0:4136:e378:8000:63bf:80ff:fffe"},
		"metadata in the IPv4-compatible form": {"::a9fe:a9fe", "::a9fe:a9fe"},
		"loopback in the IPv4-compatible form": {"::7f00:1", "::7f00:1"},
		"metadata in the translated form":      {"::ffff:0:a9fe:a9fe", "::ffff:0:a9fe:a9fe"},
	} {
		t.Run(name, func(t *testing.T) {
			q := policy.Request{Name: "name.example", Addr: netip.MustParseAddr(c.addr), Port: 80}
			if v := policy.Decide(q, compile(t, wide...)); v.Allow || v.Why() == "" {
				t.Errorf("wide rules: %+v, want a refusal with a reason", v)
			}
			if v := policy.Decide(q, compile(t, append(wide, c.opens)...)); !v.Allow || v.Rule != c.opens {
				t.Errorf("with %s: %+v, want that it opens the address", c.opens, v)
			}
		})
	}
	for name, c := range map[string]struct{ rule, addr string }{
		"a range of the link does not open metadata": {"169.254.0.0/16", "169.254.169.254"},
		"nor does the half that holds it":            {"169.254.128.0/17", "169.254.169.254"},
		"a private range does not open metadata":     {"fd00::/8", "fd00:ec2::254"},
		"the shared range does not open metadata":    {"100.64.0.0/10", "100.100.100.200"},
		"IPv4 loopback does not open that of IPv6":   {"127.0.0.0/8", "::1"},
		"nor the form of NAT64":                      {"127.0.0.0/8", "64:ff9b::7f00:1"},
		"the range of NAT64 does not open loopback":  {"64:ff9b::/96", "64:ff9b::7f00:1"},
		"a port beside it does not open it":          {"127.0.0.1:443", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if v := decide(compile(t, c.rule), c.addr, 80); v.Allow {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestOrdinaryAddressesAreNotSpecial(t *testing.T) {
	p := compile(t, "0.0.0.0/0", "::/0")
	for _, addr := range []string{"10.0.0.1", "192.168.1.1", "8.8.8.8", "100.64.0.1", "126.255.255.255", "128.0.0.1", "169.253.255.255",
		"169.255.0.0", "1.0.0.0", "223.255.255.255", "240.0.0.1", "fd00::1", "fd00:ec2::253", "2001:db8::1", "2001:1::1", "fec0::1",
		"64:ff9b::a00:1", "64:ff9b:1::a00:1", "64:ff9b:1:a00:0:100::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "::ffff:10.0.0.1"} {
		if v := decide(p, addr, 443); !v.Allow {
			t.Errorf("%s: %s", addr, v.Why())
		}
	}
}

func TestOwnListeners(t *testing.T) {
	for name, c := range map[string]struct {
		rules []string
		addr  string
		own   string
		allow bool
	}{
		"a wide rule does not open it":              {[]string{"10.0.0.0/8"}, "10.0.0.1", "10.0.0.1:8445", false},
		"nor does a rule for its address":           {[]string{"10.0.0.1"}, "10.0.0.1", "10.0.0.1:8445", false},
		"nor does a range of ports":                 {[]string{"10.0.0.1:8000-9000"}, "10.0.0.1", "10.0.0.1:8445", false},
		"nor does a range with its port":            {[]string{"10.0.0.0/8:8445"}, "10.0.0.1", "10.0.0.1:8445", false},
		"a rule with exactly address and port does": {[]string{"10.0.0.0/8", "10.0.0.1:80,8445"}, "10.0.0.1", "10.0.0.1:8445", true},
		"also on loopback":                          {[]string{"127.0.0.1:8445"}, "127.0.0.1", "127.0.0.1:8445", true},
		"loopback as a range does not":              {[]string{"127.0.0.0/8:8445"}, "127.0.0.1", "127.0.0.1:8445", false},
		"another port is no listener":               {[]string{"10.0.0.0/8"}, "10.0.0.1", "10.0.0.1:8446", true},
		"another address is no listener":            {[]string{"10.0.0.0/8"}, "10.0.0.1", "10.0.0.2:8445", true},
		"a listener in its mapped form is the same": {[]string{"10.0.0.0/8"}, "10.0.0.1", "[::ffff:10.0.0.1]:8445", false},
		"an address in its mapped form is the same": {[]string{"10.0.0.0/8"}, "::ffff:10.0.0.1", "10.0.0.1:8445", false},
		"what NAT64 would bring to it":              {[]string{"::/0"}, "64:ff9b::a00:1", "10.0.0.1:8445", false},
		"what ISATAP would bring to it":             {[]string{"::/0"}, "2001:db8::5efe:a00:1", "10.0.0.1:8445", false},
		"what 6to4 would bring to it, named":        {[]string{"[2002:a00:1::1]:8445"}, "2002:a00:1::1", "10.0.0.1:8445", true},
		"on all addresses, all of loopback":         {[]string{"127.0.0.0/8"}, "127.9.9.9", "0.0.0.0:8445", false},
		"on all addresses of IPv6, all of loopback": {[]string{"127.0.0.0/8"}, "127.0.0.1", "[::]:8445", false},
		"on all addresses, what is not listed":      {[]string{"10.0.0.0/8"}, "10.0.0.1", "0.0.0.0:8445", true},
	} {
		t.Run(name, func(t *testing.T) {
			if v := decide(compile(t, c.rules...), c.addr, 8445, c.own); v.Allow != c.allow || v.Why() == "" {
				t.Errorf("%+v, want allow=%v", v, c.allow)
			}
		})
	}
}

// specialRanges is the promise of the README, written down a second time.
func specialRanges() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10", "0.0.0.0/8", "::/128", "224.0.0.0/4",
		"ff00::/8", "255.255.255.255/32", "fd00:ec2::254/128"} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestSpecialAddressesNeedARuleWithinTheirRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.SampledFrom(specialRanges()).Draw(t, "special range")
		addr := drawIn(t, within)
		var rules []string
		named := false
		for range rapid.IntRange(1, 6).Draw(t, "rules") {
			var around netip.Addr
			if rapid.Bool().Draw(t, "around the address") {
				around = addr
			} else {
				around = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
			}
			p := netip.PrefixFrom(around, rapid.IntRange(0, around.BitLen()).Draw(t, "bits")).Masked()
			rules = append(rules, p.String())
			named = named || p.Bits() >= within.Bits() && within.Overlaps(p)
		}
		asked := addr
		if asked.Is4() && rapid.Bool().Draw(t, "mapped") {
			asked = netip.AddrFrom16(asked.As16())
		}
		p, problems := policy.CompileAllow(rules)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		q := policy.Request{Name: "a.example", Addr: asked, Port: rapid.Uint16Min(1).Draw(t, "port")}
		if v := policy.Decide(q, p); v.Allow && !named {
			t.Fatalf("%s is allowed by %q of %q, none of which lies within %s", asked, v.Rule, rules, within)
		}
	})
}

func drawIn(t *rapid.T, p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	noise := rapid.SliceOfN(rapid.Byte(), len(raw), len(raw)).Draw(t, "noise")
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= noise[bit/8] & (0x80 >> (bit % 8))
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok || !p.Contains(addr) {
		t.Fatal(fmt.Sprint("no address in ", p))
	}
	return addr
}
