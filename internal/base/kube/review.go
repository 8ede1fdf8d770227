// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"net/http"

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
	if !got.Status.Authenticated {
		f := fault.New(fault.CodeUnauthorized, "the token is not valid").Hint("is it for this cluster and audience?")
		if got.Status.Error != "" {
			f.Whyf("the API server says: %s", shown(got.Status.Error))
		}
		return Review{}, f
	}
	out := Review{User: got.Status.User.Username}
	if nodes := got.Status.User.Extra[extraNode]; len(nodes) == 1 {
		out.Node = nodes[0]
	}
	return out, nil
}
