// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const nodeConfigsPath = group + "/nodeconfigs"

// Planned is a NodeConfig as the API server has it.
type Planned struct {
	Generation int64 // of its spec
	Applied    int64 // the one that its status names; 0: none
}

// PutNodeConfig writes the plan of a node. Kubernetes removes the object with the Node.
func (c *Client) PutNodeConfig(ctx context.Context, name, node string, spec v1alpha1.NodeConfigSpec) (Planned, error) {
	var of nodeObject
	err := c.ask(ctx, call{method: http.MethodGet, path: nodesPath + "/" + url.PathEscape(node), accept: asMetadata}, &of)
	if Answered(err) == http.StatusNotFound {
		return Planned{}, fault.Newf(fault.CodeNotFound, "Kubernetes has no Node %q whose plan could be written", node).
			Because(err).Hint("the node's name must be that of its Node: kubectl get nodes")
	}
	if err != nil {
		return Planned{}, err
	}
	body := map[string]any{"metadata": map[string]any{"name": name,
		"ownerReferences": []owner{{"v1", "Node", node, of.Metadata.UID}}}, "spec": spec}
	var out struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
		Status struct {
			AppliedGeneration int64 `json:"appliedGeneration"`
		} `json:"status"`
	}
	err = c.applyNodeConfig(ctx, name, "", body, &out)
	return Planned{out.Metadata.Generation, out.Status.AppliedGeneration}, err
}

// PutNodeConfigStatus writes what the node has of its plan: a value whose JSON is that of the kind's status.
func (c *Client) PutNodeConfigStatus(ctx context.Context, name string, status any) error {
	return c.applyNodeConfig(ctx, name, "/status", map[string]any{"metadata": map[string]any{"name": name},
		"status": status}, nil)
}

func (c *Client) applyNodeConfig(ctx context.Context, name, sub string, body map[string]any, out any) error {
	body["apiVersion"], body["kind"] = v1alpha1.Version, v1alpha1.KindNodeConfig
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.ask(ctx, call{
		method: http.MethodPatch, path: nodeConfigsPath + "/" + url.PathEscape(name) + sub, kind: applyPatch, body: text,
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
	}, out)
}

// DeleteNodeConfig removes the NodeConfig of a node, if there is one, or the kind.
func (c *Client) DeleteNodeConfig(ctx context.Context, name string) error {
	err := c.ask(ctx, call{method: http.MethodDelete, path: nodeConfigsPath + "/" + url.PathEscape(name)}, nil)
	if Answered(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// Backoff is how long to wait between tries of one kind of request.
type Backoff struct{ tries tries }

// After is the wait after a try that ended with err; 0 without an error.
func (b *Backoff) After(err error) time.Duration {
	if err == nil {
		b.tries = tries{}
		return 0
	}
	return retry(err, b.tries.next(err), rand.Float64())
}
