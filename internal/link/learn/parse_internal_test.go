// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string
		as   meaning
	}{
		"1.19": {`Service "x" is invalid: spec.clusterIP: Invalid value: "0.0.0.0": provided IP is not in the valid range. ` +
			`The range of valid IPs is 10.96.0.0/12`, "[10.96.0.0/12]", namesRange},
		"1.20": {`Service "x" is invalid: spec.clusterIPs: Invalid value: []string{"0.0.0.0"}: failed to allocated ip:0.0.0.0 ` +
			`with error:provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12`, "[10.96.0.0/12]", namesRange},
		"1.32": {`Service "x" is invalid: spec.clusterIPs: Invalid value: []string{"0.0.0.0"}: failed to allocate IP 0.0.0.0: ` +
			`the provided IP (0.0.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/16`, "[10.96.0.0/16]", namesRange},
		"IPv6": {`failed to allocate IP ::: the provided IP (::) is not in the valid range. The range of valid IPs is fd00:10:96::/112`,
			"[fd00:10:96::/112]", namesRange},
		"both families": {`[spec.clusterIPs[0]: The range of valid IPs is 10.96.0.0/12, spec.clusterIPs[1]: The range of valid IPs ` +
			`is fd00::/108.]`, "[10.96.0.0/12 fd00::/108]", namesRange},
		"twice":           {`The range of valid IPs is 10.96.0.0/12. The range of valid IPs is 10.96.0.0/12`, "[10.96.0.0/12]", namesRange},
		"1.33":            {`failed to allocate IP 0.0.0.0: the provided network does not match the current range`, "[]", saysNothing},
		"no such family":  {`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`, "[]", noFamily},
		"no range in it":  {`The range of valid IPs is CIDR`, "[]", another},
		"everything":      {`The range of valid IPs is 0.0.0.0/0`, "[]", another},
		"loopback":        {`The range of valid IPs is 127.0.0.0/8`, "[]", another},
		"of node ports":   {`provided port is not in the valid range. The range of valid ports is 30000-32767`, "[]", another},
		"something else":  {`services is forbidden`, "[]", another},
		"nothing":         {``, "[]", another},
		"too far behind":  {strings.Repeat(" ", mostAnswer) + `The range of valid IPs is 10.96.0.0/12`, "[]", another},
		"too many ranges": {strings.Repeat(`The range of valid IPs is 10.9.0.0/16 The range of valid IPs is 10.8.0.0/16 `, 9), "[10.9.0.0/16 10.8.0.0/16]", namesRange},
	} {
		t.Run(name, func(t *testing.T) {
			got, as := parseAnswer(c.text)
			if fmt.Sprint(got) != c.want || as != c.as {
				t.Errorf("%v (%d), want %s (%d)", got, as, c.want, c.as)
			}
		})
	}
}

func TestFlagValue(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  string
		found bool
	}{
		{[]string{"kube-apiserver", "--service-cluster-ip-range=10.96.0.0/12"}, "10.96.0.0/12", true},
		{[]string{"kube-apiserver", "--service-cluster-ip-range", "10.96.0.0/12", "--v=2"}, "10.96.0.0/12", true},
		{[]string{"/bin/sh", "-c", "exec kube-apiserver --v=2 \\\n  --service-cluster-ip-range='10.96.0.0/12' \\\n  --x"}, "10.96.0.0/12", true},
		{[]string{"sh", "-c", `kube-apiserver "--service-cluster-ip-range=10.96.0.0/12" 2>&1`}, "10.96.0.0/12", true},
		{[]string{"--service-cluster-ip-range=10.0.0.0/16", "--service-cluster-ip-range=10.1.0.0/16"}, "10.1.0.0/16", true},
		{[]string{"--service-cluster-ip-range", "--v=2"}, "", false},
		{[]string{"--service-cluster-ip-range"}, "", false},
		{[]string{"--service-cluster-ip-range-more=10.0.0.0/16"}, "", false},
		{nil, "", false},
	} {
		if got, found := flagValue(c.args, flagServices); got != c.want || found != c.found {
			t.Errorf("%q: %q, %t", c.args, got, found)
		}
	}
}

func TestMerge(t *testing.T) {
	for in, want := range map[string]string{
		"":                                         "",
		"10.0.1.0/24 10.0.0.0/24":                  "10.0.0.0/23",
		"10.0.1.0/24 10.0.2.0/24":                  "10.0.1.0/24 10.0.2.0/24", // not the halves of one range
		"10.0.0.0/24 10.0.1.0/24 10.0.2.0/23":      "10.0.0.0/22",
		"10.0.0.0/16 10.0.9.0/24 10.0.0.0/16":      "10.0.0.0/16",
		"0.0.0.0/1 128.0.0.0/1":                    "0.0.0.0/0",
		"fd00::/65 fd00:0:0:0:8000::/65 1.0.0.0/8": "1.0.0.0/8 fd00::/64",
	} {
		var ps []netip.Prefix
		for _, word := range strings.Fields(in) {
			ps = append(ps, netip.MustParsePrefix(word))
		}
		if got := strings.Trim(fmt.Sprint(merge(ps)), "[]"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("The range of valid IPs is 10.96.0.0/12")
	f.Fuzz(func(t *testing.T, text string) {
		got, as := parseAnswer(text)
		if (as == namesRange) != (len(got) > 0) || len(got) > mostNamedRanges {
			t.Fatalf("%v of meaning %d", got, as)
		}
		usable(t, got)
	})
}

func FuzzFlagValue(f *testing.F) {
	f.Add("kube-apiserver\x00--service-cluster-ip-range=10.96.0.0/12")
	f.Fuzz(func(t *testing.T, line string) {
		l := &learner{}
		value, found := flagValue(strings.Split(line, "\x00"), flagServices)
		if !found && value != "" {
			t.Fatalf("%q is not found", value)
		}
		usable(t, l.parse("flag", split(value)))
	})
}

func FuzzNetConf(f *testing.F) {
	f.Add(`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`)
	f.Fuzz(func(t *testing.T, text string) {
		l := &learner{}
		texts, err := netConf(text)
		if err != nil && texts != nil || len(texts) > 2 {
			t.Fatalf("%q, %v", texts, err)
		}
		usable(t, l.parse("net-conf.json", texts))
	})
}

func FuzzRange(f *testing.F) {
	f.Add("10.244.0.1/16")
	f.Fuzz(func(t *testing.T, text string) {
		if p, why := parseRange(text); why == "" {
			usable(t, []netip.Prefix{p})
		} else if p.IsValid() {
			t.Fatalf("%s %s", p, why)
		}
	})
}

// FuzzLearn decides on objects that a cluster may have.
func FuzzLearn(f *testing.F) {
	f.Add(`{"Nodes":[{"metadata":{"name":"a"},"spec":{"podCIDRs":["10.244.0.0/24"]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var facts Facts
		if json.Unmarshal([]byte(text), &facts) != nil {
			return
		}
		got := From(facts, Spec{})
		if len(got.Problems) > mostProblems {
			t.Fatalf("%d problems", len(got.Problems))
		}
		for _, list := range [][]Learned{got.Ranges.Pods, got.Ranges.Services} {
			for i, one := range list {
				usable(t, []netip.Prefix{one.Prefix})
				if i > 0 && list[i-1].Prefix.Overlaps(one.Prefix) || one.From == "" || len(one.From) > 320 {
					t.Fatalf("%v", list)
				}
			}
		}
		owner := map[netip.Prefix]string{}
		for node, ps := range got.Nodes {
			for _, p := range ps {
				if !within(got.Ranges.Pods, p) {
					t.Fatalf("%s of %s is not within %v", p, node, got.Ranges.Pods)
				}
				for other := range owner {
					if other.Overlaps(p) {
						t.Fatalf("%s of %s overlaps %s of %s", p, node, other, owner[other])
					}
				}
				owner[p] = node
			}
		}
	})
}

// usable requires ranges that may be routed.
func usable(t *testing.T, ps []netip.Prefix) {
	t.Helper()
	for _, p := range ps {
		if !p.IsValid() || p != p.Masked() || p.Bits() == 0 || slices.ContainsFunc(special(), p.Overlaps) {
			t.Fatalf("%s is not usable", p)
		}
	}
}
