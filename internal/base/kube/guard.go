// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// policyName is the name of the admission policy that restricts each node to the Member of its
// own name, and of the policy's binding.
const policyName = "members.tombolo.dev"

const admission = "/apis/admissionregistration.k8s.io/v1/"

// guard checks that the API server has the policy: without it every node may write the objects
// of all others, and nothing else shows that.
type guard struct {
	client *Client
	log    *slog.Logger
	random func() float64

	mu   sync.Mutex
	lack error // nil: it is in force, or not checked yet
}

// run checks at intervals until ctx ends.
func (g *guard) run(ctx context.Context) error {
	var failed tries
	for ctx.Err() == nil {
		lack, err := g.look(ctx)
		pause := kubeGuard
		if err == nil {
			failed = tries{}
			g.found(lack)
		} else {
			pause = min(retry(err, failed.next(err), g.random()), kubeGuard)
		}
		if !run.Wait(ctx, pause) {
			break
		}
	}
	return nil
}

// look returns what is missing, or err if the API server does not answer.
func (g *guard) look(ctx context.Context) (lack, err error) {
	var policy struct {
		Spec struct {
			FailurePolicy string `json:"failurePolicy"`
		} `json:"spec"`
	}
	var binding struct {
		Spec struct {
			PolicyName        string   `json:"policyName"`
			ValidationActions []string `json:"validationActions"`
		} `json:"spec"`
	}
	for _, part := range []struct {
		kind string
		into any
	}{{"validatingadmissionpolicies", &policy}, {"validatingadmissionpolicybindings", &binding}} {
		err := g.client.ask(ctx, call{method: http.MethodGet, path: admission + part.kind + "/" + policyName}, part.into)
		switch Answered(err) {
		case http.StatusNotFound:
			return unguarded("the API server has no " + part.kind + "/" + policyName), nil
		case http.StatusForbidden:
			return fault.New(fault.CodeKubeDenied, "it is not known whether nodes may write the Member of others").Because(err).
				Hint("apply what 'tombolo discovery manifest' prints: it lets members see whether its policy is there"), nil
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case policy.Spec.FailurePolicy == "Ignore":
		return unguarded("the policy is ignored when it fails (failurePolicy)"), nil
	case binding.Spec.PolicyName != policyName || !slices.Contains(binding.Spec.ValidationActions, "Deny"):
		return unguarded("the policy's binding does not deny"), nil
	}
	return nil, nil
}

func unguarded(why string) error {
	return fault.New(fault.CodeKubeDenied, "every node may write the Member of others").Whyf("%s", why).
		Hint("apply what 'tombolo discovery manifest' prints; API servers have such policies since Kubernetes 1.30")
}

// found notes what is missing, and logs it once.
func (g *guard) found(lack error) {
	g.mu.Lock()
	before := g.lack
	g.lack = lack
	g.mu.Unlock()
	switch {
	case lack != nil && before == nil:
		x := fault.From(lack)
		g.log.Warn("the admission policy for Members is not in force", telemetry.AttrCode, x.Code,
			telemetry.AttrReason, x.Explain())
	case lack == nil && before != nil:
		g.log.Info("the admission policy for Members is in force")
	}
}

func (g *guard) missing() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lack
}
