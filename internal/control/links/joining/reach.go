// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// mostWhy bounds what is shown of an API server's message, in bytes.
const mostWhy = 600

// place is an API server, and a client of it.
type place struct {
	client.Client
	config *rest.Config
	what   string // for people
}

// fromFiles reaches the API server of a kubeconfig, as kubectl does: a list of files, else those of the environment.
func fromFiles(file, context string) (*place, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "the kubeconfig cannot be used").Because(err).
			Hint("name another one with --kubeconfig and --context")
	}
	return reach(config, "this cluster")
}

// fromText reaches the host cluster by the text of a kubeconfig.
//
//	server: the URL at which it is reached from here; empty: as the kubeconfig says
func fromText(text []byte, server string) (*place, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "the kubeconfig for the host cluster cannot be used").Because(err).
			Hint("join again with a new line: tombolo link token CLUSTER at the host cluster")
	}
	if server != "" {
		config.ServerName = invite.ServerName(config.ServerName, config.Host)
		config.Host, config.Proxy = server, nil
	}
	return reach(config, "the host cluster")
}

// mostNames bounds how many names of a certificate are shown.
const mostNames = 20

// misnamed says which names the certificate of a server has that was verified by another one; empty: it was not that.
func misnamed(err error) string {
	var wrong x509.HostnameError
	if !errors.As(err, &wrong) {
		return ""
	}
	names := slices.Clone(wrong.Certificate.DNSNames)
	for _, ip := range wrong.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	for i, n := range names {
		names[i] = untrusted.Text(n, 100)
	}
	if more := len(names) - mostNames; more > 0 {
		names = append(names[:mostNames], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the server's certificate is not for %s, but for %s", untrusted.Text(wrong.Host, 100),
		cmp.Or(strings.Join(names, ", "), "no name at all"))
}

func reach(config *rest.Config, what string) (*place, error) {
	config.Timeout, config.QPS, config.UserAgent = answers, -1, "tombolo"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authv1.AddToScheme, objects.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, failed("reach "+what, err)
	}
	return &place{c, config, what}, nil
}

// failed is an error of an API server as a fault; what begins with a verb.
func failed(what string, err error) error {
	var known *fault.Fault
	if err == nil || errors.As(err, &known) {
		return err
	}
	f := fault.Newf(fault.CodeKubeAway, "cannot %s", what).Whyf("%s", untrusted.Text(err.Error(), mostWhy)).
		Hint("see whether the API server of the kubeconfig is reached: kubectl get --raw /readyz")
	switch {
	case apierrors.IsUnauthorized(err):
		f.Code = fault.CodeKubeDenied
		f.Hint("the credentials are not valid there, or no longer")
	case apierrors.IsForbidden(err):
		f.Code = fault.CodeKubeDenied
		f.Hint("use a kubeconfig of an administrator")
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		f.Code = fault.CodeNotFound
		f.Hint("see what is there: tombolo link list")
	case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		f.Code = fault.CodeLinkRefused
		f.Hint("correct what the API server names")
	}
	return f
}

// missing reports whether an object, or its kind, is not there.
func missing(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// until asks again and again until done says so, which is at once if it can be. It reports whether that was in time.
func until(ctx context.Context, most time.Duration, done func(ctx context.Context) (bool, error)) (bool, error) {
	end := time.Now().Add(most)
	for {
		ok, err := done(ctx)
		if ok || err != nil {
			return ok, err
		}
		if time.Now().After(end) {
			return false, nil
		}
		if !run.Wait(ctx, look) {
			return false, fault.New(fault.CodeInterrupted, "the command was interrupted").
				Hint("run it again: what was done stays, and is not done twice")
		}
	}
}
