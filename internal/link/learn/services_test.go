// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

func server(name, args string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"command":[%s]}]},"status":{"phase":"Running"}}`+"\n",
		name, args)
}

const (
	oldAnswer = `Service "x" is invalid: spec.clusterIPs: Invalid value: ["0.0.0.0"]: failed to allocate IP 0.0.0.0: ` +
		`the provided IP (0.0.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/12`
	oldAnswer6 = `Service "x" is invalid: spec.clusterIPs: Invalid value: ["::"]: failed to allocate IP ::: ` +
		`the provided IP (::) is not in the valid range. The range of valid IPs is fd00:10:96::/112`
	newAnswer = `Service "x" is invalid: spec.clusterIPs: Invalid value: ["0.0.0.0"]: failed to allocate IP 0.0.0.0: ` +
		`the provided network does not match the current range`
	noIPv6 = `Service "x" is invalid: spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`
)

func TestServices(t *testing.T) {
	kubeadm := server("kube-apiserver-m1", `"kube-apiserver","--v=2","--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112"`)
	const fromFlag, fromAnswer = " < flag --service-cluster-ip-range of kube-apiserver-m1", " < answer to an invalid Service"
	api := `{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12","fd00:10:96::/112"]}}` + "\n"
	list := []learn.Right{{Verb: "list", Resource: "servicecidrs.networking.k8s.io"}, {Verb: "list", Resource: "pods",
		Namespace: "kube-system"}, {Verb: "create", Resource: "services", Namespace: "tombolo"}}
	for name, c := range map[string]struct {
		in       objects
		external bool
		want     []string
		asks     bool
		problems string
		says     string
	}{
		"the API": {in: objects{services: api, servers: kubeadm, api: true, answers: []string{oldAnswer}}, want: []string{
			"10.96.0.0/12 < ServiceCIDR kubernetes", "fd00:10:96::/112 < ServiceCIDR kubernetes"}},
		"the API, with more ranges": {in: objects{api: true, services: api +
			`{"metadata":{"name":"more","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidrs":["10.200.0.0/16"]}}` + "\n" +
			`{"metadata":{"name":"within"},"spec":{"cidrs":["10.97.0.0/16"]}}`},
			want: []string{"10.96.0.0/12 < ServiceCIDR kubernetes", "10.200.0.0/16 < ServiceCIDR more, which is being deleted",
				"fd00:10:96::/112 < ServiceCIDR kubernetes"}},
		"flags": {in: objects{servers: kubeadm}, want: []string{"10.96.0.0/12" + fromFlag, "fd00:10:96::/112" + fromFlag}},
		"flags where the API has nothing": {in: objects{servers: kubeadm, api: true},
			want: []string{"10.96.0.0/12" + fromFlag, "fd00:10:96::/112" + fromFlag}},
		"flags of two": {in: objects{servers: kubeadm + server("kube-apiserver-m2",
			`"kube-apiserver","--service-cluster-ip-range=fd00:10:96::/112,10.96.0.0/12"`)},
			want: []string{"10.96.0.0/12" + fromFlag, "fd00:10:96::/112" + fromFlag}},
		"flags that differ": {in: objects{servers: kubeadm + server("kube-apiserver-m2",
			`"kube-apiserver","--service-cluster-ip-range","10.200.0.0/16"`)},
			want: []string{"10.96.0.0/12" + fromFlag, "10.200.0.0/16 < flag --service-cluster-ip-range of kube-apiserver-m2",
				"fd00:10:96::/112" + fromFlag}, problems: "ServiceRangesDisagree"},
		"flags of a pod that ended": {in: objects{answers: []string{oldAnswer},
			servers: strings.Replace(kubeadm, "Running", "Failed", 1)}, want: []string{"10.96.0.0/12" + fromAnswer}, asks: true},
		"flags without the one": {in: objects{servers: server("kube-apiserver-m1", `"kube-apiserver","--v=2"`)}, asks: true,
			problems: "ServiceRangesUnknown", says: "no pod with the label component=kube-apiserver"},
		"the answer": {in: objects{answers: []string{oldAnswer, oldAnswer6}}, external: true,
			want: []string{"10.96.0.0/12" + fromAnswer, "fd00:10:96::/112" + fromAnswer}, asks: true},
		"the answer of one family": {in: objects{answers: []string{oldAnswer, noIPv6}}, want: []string{"10.96.0.0/12" + fromAnswer},
			asks: true},
		"outside of the cluster, whose pods are not it": {in: objects{servers: kubeadm, answers: []string{oldAnswer}},
			external: true, want: []string{"10.96.0.0/12" + fromAnswer}, asks: true},
		"outside of the cluster, with the API": {in: objects{services: api, servers: kubeadm, api: true}, external: true,
			want: []string{"10.96.0.0/12 < ServiceCIDR kubernetes", "fd00:10:96::/112 < ServiceCIDR kubernetes"}},
		"an answer that says nothing": {in: objects{answers: []string{newAnswer}}, external: true, asks: true,
			problems: "ServiceRangesUnknown", says: "the answer to an invalid Service does not name them"},
		"another answer": {in: objects{answers: []string{"admission webhook \"x\" denied it\n"}}, asks: true,
			problems: "ServiceRangesUnknown", says: `the answer to an invalid Service was: admission webhook "x" denied it`},
		"nothing may be read": {in: objects{denied: list}, asks: true, problems: "RightMissing ServiceRangesUnknown",
			says: "the reader may not create services in the namespace tombolo"},
		"the API may not be listed": {in: objects{denied: list[:1], servers: kubeadm, api: true},
			want: []string{"10.96.0.0/12" + fromFlag, "fd00:10:96::/112" + fromFlag}, problems: "RightMissing"},
		"no range": {in: objects{api: true, services: `{"metadata":{"name":"bad"},"spec":{"cidrs":["10.96.0.0"]}}`},
			problems: "RangeInvalid ServiceRangesUnknown", says: `ServiceCIDR bad: "10.96.0.0" is no CIDR`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := learn.Spec{ExternalAPIServer: c.external, CNI: "flannel"}
			c.in.configs = flannel("kube-flannel", `{"Network":"172.16.0.0/16"}`)
			f := c.in.facts(t)
			got := learn.From(f, spec)
			if asks := learn.AskService(f, spec); asks != c.asks {
				t.Errorf("it asks with an invalid Service: %t, want %t", asks, c.asks)
			}
			said := ""
			for _, p := range got.Problems {
				said += p.String() + "\n"
			}
			if list := described(got.Ranges.Services); !slices.Equal(list, c.want) {
				t.Errorf("services %q, want %q", list, c.want)
			}
			if reasons(got) != c.problems || !strings.Contains(said, c.says) {
				t.Errorf("problems %q, want %q with %q:\n%s", reasons(got), c.problems, c.says, said)
			}
		})
	}
}

// What is learned does not depend on the order in which an API server lists objects.
func TestOrder(t *testing.T) {
	o := objects{services: `{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12"]}}`}
	for i := range 40 {
		name := fmt.Sprint("n", i)
		o.nodes += node(name, fmt.Sprintf("10.244.%d.0/24", i))
		o.blocks += block(name, fmt.Sprintf("192.168.%d.0/26", i)) + block(name, fmt.Sprintf("192.168.%d.64/26", i/2)) +
			block(name, fmt.Sprintf("10.9.%d.0/26", i))
		o.pools += pool(name, fmt.Sprintf("192.168.%d.0/24", i)) + pool("x"+name, "bad")
		o.servers += server(name, fmt.Sprintf(`"--service-cluster-ip-range=10.%d.0.0/16"`, i%3))
	}
	f := o.facts(t)
	f.ServiceCIDRs = nil
	want := learn.From(f, learn.Spec{})
	if len(want.Problems) < 4 || len(want.Nodes) == 0 {
		t.Fatalf("this cluster should have problems: %+v", want)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	shuffle := func(n int, swap func(i, j int)) { dice.Shuffle(n, swap) }
	for range 20 {
		shuffle(len(f.Nodes), reflect.Swapper(f.Nodes))
		shuffle(len(f.Blocks), reflect.Swapper(f.Blocks))
		shuffle(len(f.Pools), reflect.Swapper(f.Pools))
		shuffle(len(f.APIServers), reflect.Swapper(f.APIServers))
		if got := learn.From(f, learn.Spec{}); !reflect.DeepEqual(got, want) {
			t.Fatalf("another order: %+v, want %+v", got, want)
		}
	}
}

// A cluster whose objects are as many and as bad as the reader lets pass costs little, and says little.
func TestFlood(t *testing.T) {
	var f learn.Facts
	for i := range 10_000 {
		f.Nodes = append(f.Nodes, read[learn.Node](t, node(fmt.Sprint("n", i), strings.Repeat("x", 500)))...)
		for j := range 5 {
			f.Blocks = append(f.Blocks, read[learn.BlockAffinity](t, block(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.0/%d", 8+j)))...)
		}
	}
	f.Pools = read[learn.IPPool](t, pool("p", "10.0.0.0/8"))
	got := learn.From(f, learn.Spec{})
	if len(got.Problems) > 32 || reasons(got) != "NodeRangesOverlap ServiceRangesUnknown" {
		t.Errorf("%d problems, %s", len(got.Problems), reasons(got))
	}
	for _, p := range got.Problems {
		if len(p.String()) > 2000 {
			t.Errorf("a problem of %d bytes", len(p.String()))
		}
	}
	f.Blocks = nil
	if got = learn.From(f, learn.Spec{}); len(got.Problems) > 32 || len(got.Problems[0].String()) > 2000 {
		t.Errorf("%d problems", len(got.Problems))
	}
}

func TestDecode(t *testing.T) {
	for _, text := range []string{
		`{"metadata":{"name":"p"},"spec":{"cidr":["10.0.0.0/8"]}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/8","disabled":"true"}}`,
		`{"metadata":{"name":"p"},"spec":`,
		`"` + strings.Repeat("x", 5<<20) + `"`,
	} {
		if got, err := learn.Decode[learn.IPPool]([]byte(text)); err == nil {
			t.Errorf("%.60s is read as %+v", text, got)
		}
	}
	if _, err := learn.Decode[learn.BlockAffinity]([]byte(`{"spec":{"deleted":"maybe"}}`)); err == nil {
		t.Error("maybe is a truth")
	}
}
