// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// The Secrets of a member, as the manifests have them.
const (
	hostSecret   = "tombolo-link-host"
	hostKey      = "kubeconfig"
	memberSecret = "tombolo-mesh-secret"
	controller   = "tombolo-link"
	mesh         = "tombolo-mesh"
	usual        = "tombolo-link"             // the namespace of both, if nothing else is said
	specOwner    = "tombolo-link-join"        // of the spec of a Cluster
	accountSum   = "tombolo.dev/link-account" // annotation of the controller's pods
	oldest       = 32                         // minor version of Kubernetes whose tokens of pods name the node
)

// joined is what a join has: from the line, or from what is there.
type joined struct {
	host    *place // as the account for the join, or as the member
	line    bool
	account string // kubeconfig of the member
	secret  string // of the mesh; empty: it is there
}

// join links this cluster.
func join(ctx context.Context, here *place, o invite.JoinOrder, tell *teller) error {
	var spec v1alpha1.ClusterSpec
	if len(o.Spec) > 0 {
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return fault.New(fault.CodeUsage, "what is said of the cluster cannot be read").Because(err)
		}
	}
	docs, err := read(o.Objects)
	if err != nil {
		return err
	}
	if err := here.suits(ctx, spec, o.Mesh); err != nil {
		return err
	}
	j, err := here.credentials(ctx, o)
	if err != nil {
		return err
	}
	if j.line {
		docs = ordered(append(docs, secrets(o.Namespace, j)...))
	}
	if err := starts(docs, j.account); err != nil {
		return err
	}
	if !o.DryRun {
		if err := here.settled(ctx, docs, o.Wait, tell); err != nil {
			return err
		}
	}
	ours, theirs, err := here.own(ctx, docs, o.Cluster)
	if err != nil {
		return err
	}
	if o.DryRun {
		return rehearse(ours, theirs, o, tell)
	}
	if len(o.Spec) > 0 {
		if err := j.state(ctx, o, tell); err != nil {
			return err
		}
	}
	for _, u := range theirs {
		tell.say("%s is there already, and stays as it is", name(u))
	}
	for _, u := range ours {
		if err := here.apply(ctx, u); err != nil {
			return err
		}
	}
	tell.say("applied: %s", count(ours))
	if j.line {
		if err := j.end(ctx, o.Cluster); err != nil {
			return err
		}
		tell.say("the line is used up; this cluster has an account of its own at the host cluster, in the Secret %s/%s",
			o.Namespace, hostSecret)
	}
	if o.Wait <= 0 {
		return nil
	}
	member, err := fromText([]byte(j.account), o.Server)
	if err != nil {
		return err
	}
	return await(ctx, here, member, o, tell)
}

// rehearse tells what a join would do.
func rehearse(ours, theirs []*unstructured.Unstructured, o invite.JoinOrder, tell *teller) error {
	if len(o.Spec) > 0 {
		tell.say("would state at the host cluster: %s", o.Spec)
	}
	for _, u := range theirs {
		tell.say("would leave as it is: %s", name(u))
	}
	for _, u := range ours {
		tell.say("would apply: %s", name(u))
	}
	tell.say("nothing was changed, and the line can be used")
	return nil
}

// suits checks this cluster: its version, and that it has the nodes that were named.
func (p *place) suits(ctx context.Context, spec v1alpha1.ClusterSpec, mesh bool) error {
	if mesh {
		d, err := discovery.NewDiscoveryClientForConfig(p.config)
		if err != nil {
			return failed("ask for the version of "+p.what, err)
		}
		v, err := d.ServerVersion()
		if err != nil {
			return failed("ask for the version of "+p.what, err)
		}
		minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
		if err == nil && v.Major == "1" && minor < oldest {
			return fault.Newf(fault.CodeVersion, "this cluster has Kubernetes %s, whose tokens of pods do not name the node",
				v.GitVersion).Hint("update it to 1.%d, or run 'tombolo mesh' on nodes by systemd and join with --no-mesh", oldest)
		}
	}
	var absent []string
	for _, node := range slices.Sorted(maps.Keys(spec.NodeElasticIPMap)) {
		u := made(core("Node"), "", node, nil)
		if err := p.Get(ctx, client.ObjectKeyFromObject(u), u); missing(err) {
			absent = append(absent, node)
		} else if err != nil {
			return failed("read the Node "+node, err)
		}
	}
	if len(absent) > 0 {
		return fault.Newf(fault.CodeUsage, "this cluster has no node %s", strings.Join(absent, ", ")).
			Hint("kubectl get nodes has the names for --node-elastic-ip; nothing was changed")
	}
	return nil
}

// credentials reads what the host cluster has for the line, or without one what a join has left here.
func (p *place) credentials(ctx context.Context, o invite.JoinOrder) (out joined, err error) {
	if o.Line == "" {
		return p.again(ctx, o)
	}
	line, err := invite.ParseLine(o.Line)
	if err != nil {
		return out, err
	}
	if o.Proxy != "" {
		line.Proxy = o.Proxy
	}
	text, err := line.Kubeconfig(line.Token)
	if err != nil {
		return out, err
	}
	if out.host, err = fromText([]byte(text), o.Server); err != nil {
		return out, reached(err, line, o)
	}
	var token, shared corev1.Secret
	if err := out.host.Get(ctx, client.ObjectKey{Namespace: accounts, Name: line.Cluster}, &token); err != nil {
		if apierrors.IsForbidden(err) && !o.DryRun { // a join that was interrupted has left the account
			_ = out.end(ctx, line.Cluster) // the error is that the line is used up
		}
		return out, reached(err, line, o)
	}
	if err := out.host.Get(ctx, client.ObjectKey{Namespace: joins, Name: meshSecret}, &shared); err != nil {
		return out, reached(err, line, o)
	}
	out.line, out.secret = true, string(shared.Data[secretKey])
	if out.account, err = line.Kubeconfig(string(token.Data[corev1.ServiceAccountTokenKey])); err != nil {
		return out, err
	}
	return out, nil
}

// reached is why the host cluster does not take a line.
func reached(err error, line invite.Line, o invite.JoinOrder) error {
	again := "tombolo link token " + line.Cluster
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return fault.New(fault.CodeTokenUsed, "the host cluster does not take the join line").
			Whyf("it was used, also by a join that was interrupted, replaced by a newer one, or has expired: it was made to "+
				"last until %s",
				line.Expires.Format("2006-01-02 15:04:05 UTC")).
			Hint("make another one at the host cluster: %s. To apply again what has joined: "+
				"tombolo link join %s%s", again, line.Cluster, within(o.Namespace))
	}
	out := fault.From(failed("reach the host cluster at "+cmp.Or(o.Server, line.Server), err))
	switch why := misnamed(err); {
	case out.Code != fault.CodeKubeAway:
	case why != "":
		out.Whyf("%s", why).Hint("make another line at the host cluster with one of these names: %s --server %s "+
			"--tls-server-name NAME", again, line.Server)
	case o.Server != "":
		out.Hint("--server is the address at which this command alone reaches it: see whether 'kubectl port-forward' " +
			"or what else leads there runs")
	default:
		out.Hint("it has to be reached from here and from the pods of this cluster. Where only pods reach it, give the " +
			"address at which you do: --server. Where none does, make a line with another --server, or give a proxy with " +
			"--proxy-url")
	}
	return out
}

// within is the flag for a namespace, where it is needed.
func within(space string) string {
	if space == "" || space == usual {
		return ""
	}
	return " --namespace " + space
}

// again reads what an earlier join has left.
func (p *place) again(ctx context.Context, o invite.JoinOrder) (out joined, err error) {
	if len(o.Spec) > 0 {
		return out, fault.New(fault.CodeUsage, "without a line nothing can be said of the cluster").
			Whyf("this cluster's account at the host cluster may not change its Cluster").
			Hint("change the Cluster there, or make a line: tombolo link token %s", o.Cluster)
	}
	text, err := p.account(ctx, o.Namespace, o.Cluster)
	if err != nil {
		return out, err
	}
	if text == nil {
		return out, fault.Newf(fault.CodeNotFound, "this cluster has not joined as %q: there is no Secret %s/%s of it",
			o.Cluster, o.Namespace, hostSecret).Hint("join with a line: tombolo link token %s at the host cluster", o.Cluster)
	}
	out.account = string(text)
	out.host, err = fromText(text, o.Server)
	return out, err
}

// account is the kubeconfig of a member; nil if it has none.
func (p *place) account(ctx context.Context, space, cluster string) ([]byte, error) {
	var s corev1.Secret
	err := p.Get(ctx, client.ObjectKey{Namespace: space, Name: hostSecret}, &s)
	if missing(err) || err == nil && s.Labels[label] != cluster {
		return nil, nil
	}
	return s.Data[hostKey], failed("read the account at the host cluster", err)
}

// secrets are those that a join writes here.
func secrets(space string, j joined) []*unstructured.Unstructured {
	out := []*unstructured.Unstructured{made(core("Secret"), space, hostSecret,
		map[string]any{"stringData": map[string]any{hostKey: j.account}})}
	return append(out, made(core("Secret"), space, memberSecret,
		map[string]any{"stringData": map[string]any{secretKey: j.secret}}))
}

// starts has the controller be started anew with another account, which it reads at its start alone.
func starts(docs []*unstructured.Unstructured, account string) error {
	sum := sha256.Sum256([]byte(account))
	for _, u := range docs {
		if u.GetKind() == "Deployment" && u.GetName() == controller {
			return unstructured.SetNestedField(u.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata",
				"annotations", accountSum)
		}
	}
	return nil
}

// state writes what people say of the cluster at the host.
func (j joined) state(ctx context.Context, o invite.JoinOrder, tell *teller) error {
	var spec map[string]any
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return err
	}
	u := made(links(v1alpha1.KindCluster), "", o.Cluster, map[string]any{"spec": spec})
	err := j.host.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(specOwner))
	if apierrors.IsConflict(err) {
		return fault.Newf(fault.CodeLinkRefused, "people of the host cluster say something else of %s", o.Cluster).
			Because(err).Hint("leave the flag out, or change the Cluster there: kubectl edit clusters.tombolo.dev %s", o.Cluster)
	}
	if err != nil {
		return failed(fmt.Sprintf("write the Cluster %s at the host cluster", o.Cluster), err)
	}
	tell.say("stated at the host cluster: %s", o.Spec)
	return nil
}

// end voids the line: first what its account may do, then the account. Reading the member's token comes first: without
// it another run says that the line is used up, wherever this one was interrupted. What the account may not remove is
// gone.
func (j joined) end(ctx context.Context, cluster string) error {
	for _, u := range []*unstructured.Unstructured{
		made(rbac("RoleBinding"), accounts, once+cluster, nil),
		made(rbac("ClusterRoleBinding"), "", once+cluster, nil),
	} {
		err := j.host.remove(ctx, u)
		if err != nil && fault.From(err).Code != fault.CodeKubeDenied {
			return err
		}
	}
	return j.host.remove(ctx, made(core("ServiceAccount"), joins, cluster, nil))
}
