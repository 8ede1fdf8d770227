// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const (
	// reviewPath judges tokens.
	reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews"
	// extraNode is where a review names the node of the pod for which a token was made, since Kubernetes 1.30.
	extraNode = "authentication.kubernetes.io/node-name"
)

// Review is what the API server says about a token.
type Review struct {
	User string // whose it is
	Node string // of the pod for which it was made; empty: the API server does not say
}

// tokenReview has the fields that are used.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences,omitempty"`
	} `json:"spec"`
	Status struct {
		Authenticated bool     `json:"authenticated"`
		Error         string   `json:"error"`
		Audiences     []string `json:"audiences"`
		User          struct {
			Username string              `json:"username"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status"`
}

// ReviewToken asks the API server whose a token for an audience is.
func (c *Client) ReviewToken(ctx context.Context, token, audience string) (Review, error) {
	ask := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	ask.Spec.Token, ask.Spec.Audiences = token, []string{audience}
	body, err := json.Marshal(ask)
	if err != nil {
		return Review{}, err
	}
	var got tokenReview
	err = c.ask(ctx, call{method: http.MethodPost, path: reviewPath, kind: asJSON, body: body}, &got)
	if err != nil {
		return Review{}, err
	}
	return got.judge(audience)
}

// judge reads an answer. Whoever asks about an audience has to check that it is named again: an API server that knows
// no audiences names none, and finds a token good that was made for itself, and which any pod can have sent to anybody.
func (r tokenReview) judge(audience string) (Review, error) {
	if !r.Status.Authenticated {
		f := fault.New(fault.CodeUnauthorized, "the token is not valid").Hint("is it for this cluster and audience?")
		if r.Status.Error != "" {
			f.Whyf("the API server says: %s", shown(r.Status.Error))
		}
		return Review{}, f
	}
	if !slices.Contains(r.Status.Audiences, audience) {
		return Review{}, fault.New(fault.CodeUnauthorized, "the token is for another audience").
			Whyf("%s is asked for, and the API server names %s", audience, shown(fmt.Sprintf("%q", r.Status.Audiences))).
			Hint("have the token made for that audience; an API server that names none does not know audiences: update it")
	}
	out := Review{User: r.Status.User.Username}
	if nodes := r.Status.User.Extra[extraNode]; len(nodes) == 1 {
		out.Node = nodes[0]
	}
	return out, nil
}
