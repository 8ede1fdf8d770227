// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/webhookcert"
)

// certificates keeps the Secret that all replicas share, and the CAs in the configurations of webhooks. Each
// replica renews what it finds too old; of two that do it at once, the API server refuses one, which reads again.
type certificates struct {
	client          client.Client
	log             *slog.Logger
	namespace, name string // of the Secret: name-webhooks
	plan            webhookcert.Plan
	mutates         bool // there is a configuration of webhooks that change objects too
	leads           func() bool
	told            *prometheus.CounterVec
	pair            atomic.Pointer[tls.Certificate]
}

// owner is who changes fields, as the API server notes it.
const owner = "tombolo-controller"

// errNoCertificate is what a client sees while there is none.
var errNoCertificate = errors.New("there is no certificate yet")

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := c.pair.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

func (c *certificates) expires() float64 {
	if pair := c.pair.Load(); pair != nil {
		return float64(pair.Leaf.NotAfter.Unix())
	}
	return 0
}

// run keeps certificates good until ctx ends.
func (c *certificates) run(ctx context.Context) error {
	for told := fault.Code(""); ; {
		wait := c.plan.Check()
		err := c.turn(ctx, time.Now())
		switch f := fault.From(err); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			told = ""
		default:
			c.told.WithLabelValues(telemetry.Outcome(f.Code)).Inc()
			if f.Code != told {
				c.log.Warn("the webhooks' certificates cannot be kept", telemetry.AttrCode, f.Code,
					telemetry.AttrReason, f.Error())
			}
			told, wait = f.Code, min(wait, 5*time.Second)
		}
		if !run.Wait(ctx, wait) {
			return nil
		}
	}
}

// turn reads the Secret, renews what has to be, and tells the API server whom to trust.
func (c *certificates) turn(ctx context.Context, now time.Time) error {
	key := client.ObjectKey{Namespace: c.namespace, Name: c.name + "-webhooks"}
	var have corev1.Secret
	err := c.client.Get(ctx, key, &have)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return refused("the Secret with the webhooks' certificates cannot be read", err)
	}
	data, why, err := webhookcert.Renew(have.Data, c.plan, now)
	if err != nil {
		return fault.New(fault.CodeInternal, "a certificate of the webhooks cannot be made").Because(err)
	}
	if why != "" {
		next := have.DeepCopy()
		next.ObjectMeta.Namespace, next.ObjectMeta.Name, next.Data = key.Namespace, key.Name, maps.Clone(data)
		if absent {
			next.Type = corev1.SecretTypeTLS
			next.Labels = map[string]string{"app.kubernetes.io/part-of": "tombolo", "app.kubernetes.io/managed-by": "tombolo"}
			err = c.client.Create(ctx, next)
		} else {
			err = c.client.Update(ctx, next) // with the version that was read
		}
		switch {
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
			return c.again(ctx, key)
		case err != nil:
			return refused("the Secret with the webhooks' certificates cannot be written", err)
		}
		c.log.Info("the webhooks' certificates are renewed", telemetry.AttrReason, why)
		c.told.WithLabelValues(telemetry.Outcome("")).Inc()
	}
	return c.use(ctx, data)
}

// again reads what another replica has just written.
func (c *certificates) again(ctx context.Context, key client.ObjectKey) error {
	var have corev1.Secret
	if err := c.client.Get(ctx, key, &have); err != nil {
		return refused("the Secret with the webhooks' certificates cannot be read", err)
	}
	return c.use(ctx, have.Data)
}

// use serves a certificate, once the API server trusts its CA.
func (c *certificates) use(ctx context.Context, data map[string][]byte) error {
	pair, err := tls.X509KeyPair(data[webhookcert.Certificate], data[webhookcert.Key])
	if err != nil {
		return fault.New(fault.CodeCertInvalid, "the webhooks' certificate cannot be used").Because(err).
			Hint("delete the Secret %s-webhooks in %s: it is made anew", c.name, c.namespace)
	}
	if c.leads() || c.pair.Load() == nil { // at first, by whoever comes: nobody may lead yet
		if err := c.trust(ctx, data[webhookcert.CACertificates]); err != nil {
			return err
		}
	}
	c.pair.Store(&pair)
	return nil
}

// trust writes the CAs into the configurations of the webhooks, as far as there are any.
func (c *certificates) trust(ctx context.Context, bundle []byte) error {
	if err := c.trustValidating(ctx, bundle); err != nil || !c.mutates {
		return err
	}
	return c.trustMutating(ctx, bundle)
}

func (c *certificates) trustValidating(ctx context.Context, bundle []byte) error {
	var have admissionv1.ValidatingWebhookConfiguration
	if found, err := c.configuration(ctx, &have); !found {
		return err
	}
	want := apply.ValidatingWebhookConfiguration(c.name)
	stale := false
	for _, w := range have.Webhooks {
		stale = stale || !bytes.Equal(w.ClientConfig.CABundle, bundle)
		want.WithWebhooks(apply.ValidatingWebhook().WithName(w.Name).
			WithClientConfig(apply.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return c.tell(ctx, stale, want)
}

func (c *certificates) trustMutating(ctx context.Context, bundle []byte) error {
	var have admissionv1.MutatingWebhookConfiguration
	if found, err := c.configuration(ctx, &have); !found {
		return err
	}
	want := apply.MutatingWebhookConfiguration(c.name)
	stale := false
	for _, w := range have.Webhooks {
		stale = stale || !bytes.Equal(w.ClientConfig.CABundle, bundle)
		want.WithWebhooks(apply.MutatingWebhook().WithName(w.Name).
			WithClientConfig(apply.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return c.tell(ctx, stale, want)
}

// configuration reads one that has the controller's name.
func (c *certificates) configuration(ctx context.Context, into client.Object) (found bool, err error) {
	err = c.client.Get(ctx, client.ObjectKey{Name: c.name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, refused("the configuration of the webhooks cannot be read", err)
	}
	return true, nil
}

// tell writes a configuration that is stale.
func (c *certificates) tell(ctx context.Context, stale bool, want runtime.ApplyConfiguration) error {
	if !stale {
		return nil
	}
	if err := c.client.Apply(ctx, want, client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return refused("the configuration of the webhooks cannot be written", err)
	}
	c.log.Info("the API server is told which CAs the webhooks have")
	return nil
}

// refused is what the API server said.
func refused(what string, err error) *fault.Fault {
	if apierrors.IsForbidden(err) {
		return fault.New(fault.CodeKubeDenied, what).Because(err).
			Hint("apply what 'tombolo controller manifest' prints: it has the rights")
	}
	return fault.New(fault.CodeKubeAway, what).Because(err).Hint("it is tried again")
}
