// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Lease is an object of coordination.k8s.io by which servers of konnectivity are counted.
type Lease struct {
	Name    string
	Labels  map[string]string
	Holder  string
	Renewed time.Time
	Life    time.Duration
}

// Valid says whether the lease has not run out.
func (l Lease) Valid(now time.Time) bool { return now.Before(l.Renewed.Add(l.Life)) }

const (
	leaseVersion = "coordination.k8s.io/v1"
	microTime    = "2006-01-02T15:04:05.000000Z07:00"
)

type leaseObject struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Holder  string `json:"holderIdentity"`
		Seconds int    `json:"leaseDurationSeconds"`
		Renewed string `json:"renewTime"`
	} `json:"spec"`
}

func (o leaseObject) lease() Lease {
	l := Lease{Name: o.Metadata.Name, Labels: o.Metadata.Labels, Holder: o.Spec.Holder,
		Life: time.Duration(o.Spec.Seconds) * time.Second}
	l.Renewed, _ = time.Parse(time.RFC3339Nano, o.Spec.Renewed) // without one it has run out
	return l
}

func leasePath(namespace string) string {
	return "/apis/" + leaseVersion + "/namespaces/" + url.PathEscape(namespace) + "/leases"
}

// Leases lists those with these labels, as the API server's cache has them.
func (c *Client) Leases(ctx context.Context, namespace, labels string) ([]Lease, error) {
	var got struct {
		Items []leaseObject `json:"items"`
	}
	err := c.ask(ctx, call{method: http.MethodGet, path: leasePath(namespace),
		query: url.Values{"labelSelector": {labels}, "resourceVersion": {"0"}}}, &got)
	var out []Lease
	for _, o := range got.Items {
		out = append(out, o.lease())
	}
	return out, err
}

// PutLease makes or renews a lease, by the verbs that roles made for the reference allow: get, create and update.
func (c *Client) PutLease(ctx context.Context, namespace string, l Lease) error {
	path := leasePath(namespace)
	at := path + "/" + url.PathEscape(l.Name)
	var have map[string]any
	err := c.ask(ctx, call{method: http.MethodGet, path: at}, &have)
	put := call{method: http.MethodPut, path: at, kind: asJSON}
	switch {
	case Answered(err) == http.StatusNotFound:
		have = map[string]any{"apiVersion": leaseVersion, "kind": "Lease",
			"metadata": map[string]any{"name": l.Name, "namespace": namespace}}
		put.method, put.path = http.MethodPost, path
	case err != nil:
		return err
	}
	renew(have, l)
	if put.body, err = json.Marshal(have); err != nil {
		return err
	}
	return c.ask(ctx, put, nil)
}

// renew sets what a lease says in an object, and leaves what else it has.
func renew(o map[string]any, l Lease) {
	part := func(name string) map[string]any {
		p, ok := o[name].(map[string]any)
		if !ok {
			p = map[string]any{}
			o[name] = p
		}
		return p
	}
	part("metadata")["labels"] = l.Labels
	spec := part("spec")
	spec["holderIdentity"], spec["leaseDurationSeconds"] = l.Holder, int(l.Life/time.Second)
	spec["renewTime"] = l.Renewed.UTC().Format(microTime)
}

// DeleteLease removes a lease.
func (c *Client) DeleteLease(ctx context.Context, namespace, name string) error {
	return c.ask(ctx, call{method: http.MethodDelete, path: leasePath(namespace) + "/" + url.PathEscape(name)}, nil)
}
