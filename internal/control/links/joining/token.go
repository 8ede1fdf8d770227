// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// The places of what a host cluster has for one that joins, as manifest.Invitation has them.
const (
	accounts   = "tombolo-links"
	joins      = "tombolo-link-join"
	meshSecret = "mesh-secret"
	secretKey  = "secret"
	once       = "tombolo-link-join-"
	expires    = "tombolo.dev/expires" // annotation of an account for a join, RFC 3339
	policy     = "links.tombolo.dev"
)

const install = "apply at the host cluster what this prints: " +
	"tombolo controller manifest --image IMAGE --config FILE, with features: {links: {host: true}} in the file"

// token has the host cluster invite a cluster, and gives the line.
func token(ctx context.Context, host *place, o invite.TokenOrder, tell *teller) (string, error) {
	host.what = "the host cluster"
	line, err := lineOf(host, o)
	if err != nil {
		return "", err
	}
	if o.Server != "" || o.Name != "" {
		host.named(line, tell)
	}
	fresh, err := host.known(ctx, o.Cluster)
	if err != nil {
		return "", err
	}
	if err := host.judges(ctx, o, tell); err != nil {
		if fresh { // nobody else wants it
			c := &objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: o.Cluster}}
			_ = host.Delete(context.WithoutCancel(ctx), c) // the error is that it is not judged
		}
		return "", err
	}
	docs, err := read(o.Objects)
	if err != nil {
		return "", err
	}
	// Another line for the same cluster is void from here on.
	before := made(core("ServiceAccount"), joins, o.Cluster, nil)
	if err := host.remove(ctx, before); err != nil {
		return "", err
	}
	if err := host.renew(ctx, o, tell); err != nil {
		return "", err
	}
	if err := host.settled(ctx, docs, o.Wait, tell); err != nil {
		return "", err
	}
	ends := time.Now().Add(o.Expires).UTC().Truncate(time.Second)
	for _, u := range docs {
		if u.GetKind() == "ServiceAccount" && u.GetNamespace() == joins {
			u.SetAnnotations(map[string]string{expires: ends.Format(time.RFC3339)})
		}
		if err := host.apply(ctx, u); err != nil {
			return "", err
		}
	}
	if err := host.sharedSecret(ctx, o, tell); err != nil {
		return "", err
	}
	if err := host.tokened(ctx, o, docs, tell); err != nil {
		return "", err
	}
	line.Token, line.Expires, err = host.mint(ctx, o)
	if err != nil {
		return "", err
	}
	return line.Encode()
}

// lineOf is the line without its token.
func lineOf(host *place, o invite.TokenOrder) (invite.Line, error) {
	l := invite.Line{Cluster: o.Cluster, Server: o.Server, ServerName: cmp.Or(o.Name, host.config.ServerName),
		CA: host.config.CAData, Proxy: o.Proxy}
	if l.Server == "" {
		l.Server = host.config.Host
	}
	if file := host.config.CAFile; len(l.CA) == 0 && file != "" {
		var err error
		if l.CA, err = os.ReadFile(file); err != nil {
			return l, fault.New(fault.CodeConfig, "the CA of the host's API server cannot be read").Because(err).
				Hint("correct certificate-authority of the kubeconfig")
		}
	}
	if host.config.Insecure {
		return l, fault.New(fault.CodeConfig, "no member could tell who answers").
			Whyf("the kubeconfig has insecure-skip-tls-verify").Hint("use one with certificate-authority-data")
	}
	u, err := url.Parse(l.Server)
	if err != nil {
		return l, fault.Newf(fault.CodeUsage, "%q is no URL of an API server", l.Server).Hint("--server https://HOST:6443")
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		if o.Server == "" {
			return l, fault.Newf(fault.CodeUsage, "other clusters do not reach the host's API server by %s", l.Server).
				Hint("name an address that they reach: --server https://HOST:6443")
		}
	}
	return l, nil
}

// named tells people if the API server that answers here has no certificate for the name by which members will verify
// it. It is no error: another server may answer members.
func (p *place) named(line invite.Line, tell *teller) {
	config := rest.CopyConfig(p.config)
	config.ServerName = invite.ServerName(line.ServerName, line.Server)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err == nil {
		_, err = d.ServerVersion()
	}
	if why := misnamed(err); why != "" {
		tell.say("%s: if this is the one that members reach, make the line again with one of these names in "+
			"--tls-server-name", why)
	}
}

// known checks that the host cluster has kinds and policy, and makes the Cluster if it is not there. It reports whether
// it did.
func (p *place) known(ctx context.Context, cluster string) (fresh bool, err error) {
	c := &objects.Cluster{}
	err = p.Get(ctx, client.ObjectKey{Name: cluster}, c)
	if err != nil && !missing(err) {
		return false, failed("read the Cluster", err)
	}
	if meta.IsNoMatchError(err) {
		return false, fault.New(fault.CodeNotFound, "this is no host cluster: it has no kind Cluster of tombolo.dev").
			Hint(install)
	}
	absent := err != nil
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		u := made(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, "", policy, nil)
		if err := p.Get(ctx, client.ObjectKeyFromObject(u), u); missing(err) {
			return false, fault.Newf(fault.CodeNotFound, "the host cluster has no %s %s", kind, policy).
				Whyf("without it members could write each other's objects").Hint(install)
		} else if err != nil {
			return false, failed("read the policy for members", err)
		}
	}
	if !absent {
		return false, nil
	}
	// Applied, not created: the defaults of the kind are nobody's then, and the cluster that joins may set them.
	u := made(links(v1alpha1.KindCluster), "", cluster, map[string]any{"spec": map[string]any{}})
	u.SetLabels(map[string]string{label: cluster})
	return true, p.apply(ctx, u)
}

// judges waits until the controller of the host cluster has judged the Cluster: this is how it is seen to run.
func (p *place) judges(ctx context.Context, o invite.TokenOrder, tell *teller) error {
	tell.waits("waiting for the controller of the host cluster")
	ok, err := until(ctx, o.Wait, func(ctx context.Context) (bool, error) {
		var c objects.Cluster
		if err := p.Get(ctx, client.ObjectKey{Name: o.Cluster}, &c); err != nil {
			return false, failed("read the Cluster", err)
		}
		is := meta.FindStatusCondition(c.Status.Conditions, objects.ConditionRangesAccepted)
		return is != nil && is.ObservedGeneration == c.Generation, nil
	})
	if err == nil && !ok {
		err = fault.Newf(fault.CodeLinkPending, "no controller of the host cluster judges the %s %s after %s",
			v1alpha1.KindCluster, o.Cluster, o.Wait).Hint(install)
	}
	if err == nil {
		tell.took()
	}
	return err
}

// sharedSecret has the host cluster have the secret of all meshes. One that is there stays.
func (p *place) sharedSecret(ctx context.Context, o invite.TokenOrder, tell *teller) error {
	var have corev1.Secret
	err := p.Get(ctx, client.ObjectKey{Namespace: joins, Name: meshSecret}, &have)
	switch {
	case err != nil && !missing(err):
		return failed("read the secret of the mesh", err)
	case err == nil && o.Given && string(have.Data[secretKey]) != o.Secret:
		return fault.Newf(fault.CodeLinkRefused, "the linked clusters have another secret already, in %s/%s",
			joins, meshSecret).Hint("leave --secret-file out")
	case err == nil:
		return nil
	}
	have = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: joins, Name: meshSecret,
		Labels: map[string]string{"app.kubernetes.io/part-of": "tombolo"}},
		StringData: map[string]string{secretKey: o.Secret}}
	if err := p.Create(ctx, &have, client.FieldOwner(fieldOwner)); err != nil {
		return failed("write the secret of the mesh", err)
	}
	tell.say("the secret that the nodes of all linked clusters share is in the Secret %s/%s", joins, meshSecret)
	return nil
}

// mint makes a token of the account for the join.
func (p *place) mint(ctx context.Context, o invite.TokenOrder) (string, time.Time, error) {
	seconds := int64(o.Expires / time.Second)
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: joins, Name: o.Cluster}}
	if err := p.SubResource("token").Create(ctx, account, request); err != nil {
		return "", time.Time{}, failed(fmt.Sprintf("make a token of %s/%s", joins, o.Cluster), err)
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}
