// SPDX-License-Identifier: Apache-2.0

package invite_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

func TestSpec(t *testing.T) {
	for _, c := range []struct {
		said invite.Said
		want string // JSON, or words of the refusal
	}{
		{invite.Said{}, `{}`},
		{invite.Said{NodeElasticIPs: []string{"a=203.0.113.7", "b=2001:db8::7"}, NetworkType: "gateway"},
			`{"networkType":"gateway","nodeElasticIPMap":{"a":"203.0.113.7","b":"2001:db8::7"}}`},
		{invite.Said{PodCIDRs: []string{"10.1.0.0/16", "10.1.0.0/16"}, ExternalAPI: true, CNI: "calico"},
			`{"cni":"calico","clusterPodCIDRs":["10.1.0.0/16"],"useExternalAPIServer":true}`},
		{invite.Said{Maps: []string{"10.1.0.0/16=10.9.0.0/16"}}, `{"globalCIDRsMap":{"10.1.0.0/16":"10.9.0.0/16"}}`},
		{invite.Said{NodeElasticIPs: []string{"a"}}, `"a" is not NODE=IP`},
		{invite.Said{NodeElasticIPs: []string{"a=127.0.0.1"}}, "cannot reach"},
		{invite.Said{NodeElasticIPs: []string{"a=203.0.113.7", "b=203.0.113.7"}}, "one node alone"},
		{invite.Said{NodeElasticIPs: []string{"a=203.0.113.7", "a=203.0.113.8"}}, "twice"},
		{invite.Said{PodCIDRs: []string{"10.1.0.1/16"}}, "host bits"},
		{invite.Said{Maps: []string{"10.1.0.0/16"}}, "not CIDR=CIDR"},
		{invite.Said{Maps: []string{"10.1.0.0/16=10.9.0.0/17"}}, "same IP version and length"},
		{invite.Said{Maps: []string{"10.1.0.0/16=10.9.0.0/16", "10.1.0.0/16=10.8.0.0/16"}}, "twice"},
		{invite.Said{NetworkType: "star"}, "none of p2p, gateway"},
		{invite.Said{CNI: "weave"}, "none of auto"},
		{invite.Said{CNI: "weave", NetworkType: "star"}, "\n  --cni"},
		{invite.Said{PodCIDRs: make([]string, 65)}, "at most 64"},
	} {
		spec, err := invite.Spec(c.said)
		if err != nil {
			if !fault.Has(err, fault.CodeUsage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c.said, err)
			}
			continue
		}
		if text, err := json.Marshal(spec); err != nil || string(text) != c.want {
			t.Errorf("%+v: %s, %v", c.said, text, err)
		}
	}
}

func TestNext(t *testing.T) {
	heard := invite.Seen{Cluster: "west", Space: "apart", Heard: true, Accepted: "True", Nodes: 2}
	with := func(change func(*invite.Seen)) invite.Seen {
		s := heard
		change(&s)
		return s
	}
	for _, c := range []struct {
		seen          invite.Seen
		text, next    string
		done, refused bool
	}{
		{invite.Seen{Space: "apart"}, "waiting for the controller", "-n apart logs deploy/tombolo-link", false, false},
		{with(func(s *invite.Seen) { s.Accepted, s.Why = "", "" }), "judges the ranges", "describe", false, false},
		{with(func(s *invite.Seen) { s.Accepted, s.Why = "Unknown", "not learned" }), "not learned", "clusterPodCIDRs", false, false},
		{with(func(s *invite.Seen) { s.Accepted, s.Why = "False", "east has 10.1.0.0/16" }), "refuses the ranges: east has",
			"--map", false, true},
		{with(func(s *invite.Seen) { s.Mesh.Of = 3 }), "0/3 pods", "-n apart describe daemonset/tombolo-mesh", false, false},
		{with(func(s *invite.Seen) { s.Nodes = 0 }), "nodes that are in the mesh", "members", false, false},
		{heard, "no other cluster with nodes", "", true, false},
		{with(func(s *invite.Seen) { s.Others, s.Tunnels = 1, []string{"0/2", ""} }), "0/2 tunnels", "link check", false, false},
		{with(func(s *invite.Seen) { s.Others, s.Tunnels = 1, []string{"1/2", "2/2", "x/2", "3/1"} }), "3/4 of tunnels of 2 nodes",
			"", true, false},
	} {
		s := invite.Next(c.seen)
		if !strings.Contains(s.Text, c.text) || !strings.Contains(s.Next, c.next) || s.Done != c.done || s.Refused != c.refused {
			t.Errorf("%+v: %+v", c.seen, s)
		}
		if !s.Done && s.Next == "" {
			t.Errorf("%+v has no next step", s)
		}
	}
}

func TestTheKubeconfigIsOne(t *testing.T) {
	l := line(t)
	l.Proxy = "http://hub.example:8445"
	text, err := l.Kubeconfig("member-token")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"server": "` + l.Server, `"tls-server-name": "` + l.ServerName, `"proxy-url": "` + l.Proxy,
		`"token": "member-token"`, `"current-context": "host"`} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %s in %s", part, text)
		}
	}
	if strings.Contains(text, l.Token) {
		t.Error("the token for the join is in it")
	}
}
