// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// reviewPath judges tokens.
const reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews"

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
			Username string `json:"username"`
		} `json:"user"`
	} `json:"status"`
}

// ReviewToken asks the API server whose a token for an audience is.
func (c *Client) ReviewToken(ctx context.Context, token, audience string) (user string, err error) {
	ask := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	ask.Spec.Token, ask.Spec.Audiences = token, []string{audience}
	body, err := json.Marshal(ask)
	if err != nil {
		return "", err
	}
	var got tokenReview
	err = c.ask(ctx, call{method: http.MethodPost, path: reviewPath, kind: asJSON, body: body}, &got)
	if err != nil {
		return "", err
	}
	if !got.Status.Authenticated {
		f := fault.New(fault.CodeUnauthorized, "the token is not valid").Hint("is it for this cluster and audience?")
		if got.Status.Error != "" {
			f.Whyf("the API server says: %s", shown(got.Status.Error))
		}
		return "", f
	}
	return got.Status.User.Username, nil
}
