// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

// mostObjects bounds the objects of a cluster that are read from a file, in bytes.
const mostObjects = 256 << 20

func newPolicyVerifyCommand() *cobra.Command {
	var out outputFlag
	var v verifyFlags
	cmd := &cobra.Command{
		Use:   "verify [CLUSTER/FLOW --from IP] --gateway NAMESPACE/LABELS --objects FILES --tenants PATHS",
		Short: "Say what the objects of an Istio gateway decide, beside what the policy decides",
		Long: `Read the objects that an Istio gateway works by (Gateways, VirtualServices, EnvoyFilters,
AuthorizationPolicies, Services, and ConfigMaps with the data of ext_authz), find every way
into a cluster, and say what they decide about a source, whoever wrote them. A difference
from the policy is an error with exit code 4.

Without CLUSTER/FLOW it looks at every way into every tenant and at all addresses: each has
to be guarded once, and as the policy says.

What the objects leave open (a filter that is not known, a match that may hit or not) counts
as a difference.`,
		Example: `  kubectl get -A -o yaml > objects.yaml \
    gateways.networking.istio.io,virtualservices,envoyfilters,authorizationpolicies,services,configmaps
  tombolo policy verify --gateway istio-ingress/app=istio-ingressgateway --objects objects.yaml \
    --policy policies/ --tenants tenants/
  tombolo policy verify c1/api --from 203.0.113.9 --gateway istio-ingress/app=istio-ingressgateway \
    --objects objects.yaml --policy policies/ --tenants tenants/`,
		Args: atMostOne("CLUSTER/FLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			facts, w, err := v.read(cmd.InOrStdin())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return v.all(cmd, out, facts, w)
			}
			return v.one(cmd, out, facts, w, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.from, "from", "", "the `IP` address of the client, as the gateway sees it")
	f.StringVar(&v.gateway, "gateway", "", "namespace and labels of the gateway's pods, `NAMESPACE/LABEL=VALUE,...`")
	f.StringSliceVar(&v.objects, "objects", nil, "`FILES` of 'kubectl get -o yaml'; - is standard input")
	f.StringSliceVar(&v.policies, "policy", nil, "files and folders of policies (kind AccessPolicy), `PATHS`")
	v.tenants.register(cmd, "files and folders of tenants (kind EdgeTenant), `PATHS`")
	f.UintSliceVar(&v.connect, "connect-ports", []uint{8132, 8443}, "`PORTS` at which a header tells clusters apart")
	f.StringVar(&v.provider, "provider", "", "`NAME` of the ext_authz provider in the mesh's configuration")
	f.StringSliceVar(&v.always, "always", nil,
		"`RANGES` that may use every protected way (additionalRanges of a controller)")
	f.StringVar(&v.root, "root-namespace", "", "`NAME` of the mesh's root namespace (default istio-system)")
	f.StringVar(&v.data, "data-namespace", "",
		"`NAME` of the namespace with the data of ext_authz (default that of the gateway)")
	out.register(cmd)
	return cmd
}

type verifyFlags struct {
	from, gateway, provider, root, data string
	objects, policies                   []string
	connect                             []uint
	always                              []string
	tenants                             tenantsFlag

	partly map[string]*fault.Fault // by cluster: rules of which a list says a part only
}

// verified is what objects and policy decide.
type verified struct {
	Cluster string            `json:"cluster"`
	Flow    string            `json:"flow"`
	From    string            `json:"from"`
	Policy  []string          `json:"policy"` // by name or destination, where they differ
	Ways    []istio.WayAnswer `json:"ways"`
	Same    bool              `json:"same"`
}

// read collects the objects, the clusters with their lists, and the gateway.
func (v *verifyFlags) read(stdin io.Reader) (f istio.Facts, w istio.Workload, err error) {
	for flag, empty := range map[string]bool{
		"gateway": v.gateway == "", "objects": len(v.objects) == 0, "tenants": len(v.tenants.paths) == 0,
	} {
		if empty {
			return f, w, usage("--"+flag+" is missing", "see the examples of 'tombolo policy verify --help'")
		}
	}
	if w, err = v.workload(); err != nil {
		return f, w, err
	}
	for _, file := range v.objects {
		var data []byte
		if file == "-" {
			data, err = io.ReadAll(io.LimitReader(stdin, mostObjects))
		} else {
			data, err = private.ReadPublic(file, mostObjects)
		}
		if err != nil {
			return f, w, err
		}
		if err := f.Read(file, data); err != nil {
			return f, w, err
		}
	}
	f.Clusters, err = v.clusters()
	return f, w, err
}

func (v *verifyFlags) workload() (w istio.Workload, err error) {
	namespace, labels, ok := strings.Cut(v.gateway, "/")
	w = istio.Workload{Namespace: namespace, Labels: map[string]string{}, Provider: v.provider, RootNamespace: v.root,
		DataNamespace: v.data}
	for _, text := range strings.Split(labels, ",") {
		key, value, is := strings.Cut(text, "=")
		ok = ok && is && key != ""
		w.Labels[key] = value
	}
	if !ok || namespace == "" {
		return w, usage("--gateway "+v.gateway+" is malformed", "write --gateway istio-ingress/app=istio-ingressgateway")
	}
	for _, port := range v.connect {
		w.ConnectPorts = append(w.ConnectPorts, istio.ConnectPort{Port: uint32(port)})
	}
	return w, nil
}

// clusters are the tenants with the lists that the policy gives them.
func (v *verifyFlags) clusters() (out []istio.Cluster, err error) {
	s, err := readPolicies(v.policies)
	if err != nil {
		return nil, err
	}
	policies, err := s.good()
	if err != nil {
		return nil, err
	}
	table, err := v.tenants.read()
	if err != nil {
		return nil, err
	}
	rules := policy.NewEdgeRules(policies...)
	v.partly = map[string]*fault.Fault{}
	for _, text := range v.always {
		if _, err := policy.InsiderAt("", "", text); err != nil {
			return nil, usage("--always "+text+": "+err.Error(), "write a CIDR or an address: --always 192.0.2.0/24")
		}
	}
	var placed []clusters.Placed
	for _, t := range table.All() {
		placed = append(placed, clusters.Placed{Tenant: t})
	}
	for i, home := range clusters.Homes(placed) {
		t := placed[i].Tenant
		c, partly := clusters.Cluster(t, home, rules)
		if len(partly) > 0 {
			v.partly[t.Name] = fault.Newf(fault.CodeConfig, "no list of sources says what the policy says about %s", t.Name).
				Whyf("%s: %s", s.files[partly[0].Policy], partly[0].Problem.Message).
				Hint("a guard of Envoy knows server names and sources: do not tell ports apart in rules for a gateway")
		}
		istio.ReadAlways(v.always).LetIn(&c, len(policies))
		out = append(out, c)
	}
	return out, nil
}

// one compares the decisions about one source.
func (v *verifyFlags) one(cmd *cobra.Command, out outputFlag, f istio.Facts, w istio.Workload, at string) error {
	cluster, flow, _ := strings.Cut(at, "/")
	if !slices.Contains(policy.EdgeFlows(), flow) {
		return usage(at+" is no way into a cluster",
			"write CLUSTER/FLOW, a flow being "+strings.Join(policy.EdgeFlows(), ", "))
	}
	from, err := netip.ParseAddr(v.from)
	if err != nil {
		return usage("--from "+v.from+" is no address", "write the IP address of a client, such as --from 203.0.113.9")
	}
	known := slices.IndexFunc(f.Clusters, func(c istio.Cluster) bool { return c.Name == cluster })
	if known < 0 {
		return fault.Newf(fault.CodeNameUnknown, "there is no tenant %q", cluster).Hint("name one of those in --tenants")
	}
	if f := v.partly[cluster]; f != nil {
		return f
	}
	answer := istio.Decide(f, w, istio.Question{Cluster: cluster, Flow: flow, Source: from})
	got := verified{Cluster: cluster, Flow: flow, From: from.String(), Ways: answer.Ways, Same: len(answer.Ways) > 0}
	verdicts := map[bool]bool{}
	for _, way := range f.Clusters[known].Ways {
		if way.Flow == flow {
			allow := way.List.Admits(from)
			verdicts[allow] = true
			asked := strings.Join(slices.Concat(way.Hosts, way.Destinations), ", ")
			got.Policy = append(got.Policy, asked+": "+verdictWord(allow))
		}
	}
	for _, way := range answer.Ways {
		got.Same = got.Same && way.Unknown == "" && (verdicts[way.Allow] && len(verdicts) == 1)
	}
	if err := out.print(cmd.OutOrStdout(), got, got.text); err != nil {
		return err
	}
	switch {
	case got.Same:
		return nil
	case len(answer.Ways) == 0:
		return fault.Newf(fault.CodePolicyDenied, "no way leads to %s at this gateway", at).
			Hint("see to --gateway and --objects: are Gateways and VirtualServices of the cluster among them?")
	}
	return fault.Newf(fault.CodePolicyDenied, "the objects do not decide about %s as the policy does", at).
		Hint("'tombolo policy verify' without %s lists every way that differs, and why", at)
}

func verdictWord(allow bool) string {
	if allow {
		return "allowed"
	}
	return "denied"
}

func (x verified) text(w io.Writer) error {
	fmt.Fprintf(w, "%s/%s from %s\n\n", x.Cluster, x.Flow, x.From)
	for _, p := range x.Policy {
		fmt.Fprintf(w, "policy:  %s\n", p)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "WAY\tASKED\tOBJECTS\tBY")
	for _, a := range x.Ways {
		word := verdictWord(a.Allow)
		if a.Unknown != "" {
			word = "unknown: " + a.Unknown
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", a.Chain, a.Asked, word, cmp.Or(a.By, "-"))
	}
	return tw.Flush()
}

// all lists every way that is not guarded as the policy says.
func (v *verifyFlags) all(cmd *cobra.Command, out outputFlag, f istio.Facts, w istio.Workload) error {
	if v.from != "" {
		return usage("--from stands without CLUSTER/FLOW", "name the way: tombolo policy verify c1/api --from "+v.from)
	}
	_, problems := istio.Chains(f, w)
	gaps := append(istio.Coverage(f, w), istio.Strays(f, w)...)
	print := func(to io.Writer) error {
		for _, p := range problems {
			fmt.Fprintf(to, "warning: %s\n", p)
		}
		for _, name := range slices.Sorted(maps.Keys(v.partly)) {
			f := v.partly[name]
			fmt.Fprintf(to, "warning: %s: %s; what it allows counts as denied\n", f.What, f.Why)
		}
		for _, g := range gaps {
			fmt.Fprintln(to, g)
		}
		if len(gaps) == 0 {
			fmt.Fprintf(to, "every way into %s is guarded as the policy says\n", plural(len(f.Clusters), "tenant"))
		}
		return nil
	}
	if gaps == nil {
		gaps = []istio.Uncovered{}
	}
	if err := out.print(cmd.OutOrStdout(), gaps, print); err != nil || len(gaps) == 0 {
		return err
	}
	return fault.Newf(fault.CodePolicyDenied, "%s guarded otherwise than the policy says", plural(len(gaps), "way")).
		Hint("write the objects again, or remove the way")
}
