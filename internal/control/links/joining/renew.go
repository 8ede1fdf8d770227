// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// renew voids the token of a member that has not joined yet, as whoever had an earlier line may have it; of one that
// has, if that is wanted. The account goes too: for the same one there could be the same token again, as there is no
// time in it.
func (p *place) renew(ctx context.Context, o invite.TokenOrder, tell *teller) error {
	var c objects.Cluster
	if err := p.Get(ctx, client.ObjectKey{Name: o.Cluster}, &c); err != nil {
		return failed("read the Cluster", err)
	}
	// Of these conditions the member writes each, and nobody else.
	joined := false
	for _, kind := range []string{objects.ConditionReady, objects.ConditionCNIKnown, objects.ConditionClockRight} {
		joined = joined || meta.FindStatusCondition(c.Status.Conditions, kind) != nil
	}
	if joined && !o.Renew {
		tell.say("%s has joined, as its status says: its token stays valid. Somebody else may have it? Then run this with "+
			"--renew", o.Cluster)
		return nil
	}
	account := made(core("ServiceAccount"), accounts, o.Cluster, nil)
	if err := p.Get(ctx, client.ObjectKeyFromObject(account), account); missing(err) {
		return nil
	} else if err != nil {
		return failed("read "+name(account), err)
	}
	for _, kind := range []string{"Secret", "ServiceAccount"} {
		if err := p.remove(ctx, made(core(kind), accounts, o.Cluster, nil)); err != nil {
			return err
		}
	}
	if joined {
		tell.say("the token that %s has is void: it is not heard until it has joined again with this line", o.Cluster)
	} else {
		tell.say("the token to which an earlier line led is void")
	}
	return nil
}

// tokened waits until the account of a member has its token. kube-controller-manager may have taken the Secret for one
// of an earlier account of that name: then it has the wrong token, or was removed.
//
//	docs: those that were applied, the Secret among them
func (p *place) tokened(ctx context.Context, o invite.TokenOrder, docs []*unstructured.Unstructured,
	tell *teller) error {
	tell.waits("waiting for the member's token")
	var account corev1.ServiceAccount
	if err := p.Get(ctx, client.ObjectKey{Namespace: accounts, Name: o.Cluster}, &account); err != nil {
		return failed("read the member's account", err)
	}
	ok, err := until(ctx, o.Wait, func(ctx context.Context) (bool, error) {
		var s corev1.Secret
		err := p.Get(ctx, client.ObjectKey{Namespace: accounts, Name: o.Cluster}, &s)
		if err != nil && !missing(err) {
			return false, failed("read the member's token", err)
		}
		of := s.Annotations[corev1.ServiceAccountUIDKey]
		if err == nil && (of == "" || of == string(account.UID)) {
			return of != "" && len(s.Data[corev1.ServiceAccountTokenKey]) > 0, nil
		}
		for _, u := range docs {
			if u.GetKind() != "Secret" {
				continue
			}
			if err := p.remove(ctx, made(core("Secret"), accounts, o.Cluster, nil)); err != nil {
				return false, err
			}
			if err := p.apply(ctx, u); err != nil {
				return false, err
			}
		}
		return false, nil
	})
	if err == nil && !ok {
		err = fault.Newf(fault.CodeLinkPending, "the Secret %s/%s has no token after %s", accounts, o.Cluster, o.Wait).
			Hint("kube-controller-manager of the host cluster writes it: see whether it runs, and run this again")
	}
	if err == nil {
		tell.took()
	}
	return err
}
