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
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Holder  string `json:"holderIdentity"`
		Seconds int    `json:"leaseDurationSeconds"`
		Renewed string `json:"renewTime,omitempty"`
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

// Leases lists those with these labels.
func (c *Client) Leases(ctx context.Context, namespace, labels string) ([]Lease, error) {
	var got struct {
		Items []leaseObject `json:"items"`
	}
	err := c.ask(ctx, call{method: http.MethodGet, path: leasePath(namespace),
		query: url.Values{"labelSelector": {labels}}}, &got)
	var out []Lease
	for _, o := range got.Items {
		out = append(out, o.lease())
	}
	return out, err
}

// ApplyLease makes or renews a lease.
func (c *Client) ApplyLease(ctx context.Context, namespace string, l Lease) error {
	o := leaseObject{APIVersion: leaseVersion, Kind: "Lease"}
	o.Metadata.Name, o.Metadata.Namespace, o.Metadata.Labels = l.Name, namespace, l.Labels
	o.Spec.Holder, o.Spec.Seconds = l.Holder, int(l.Life/time.Second)
	o.Spec.Renewed = l.Renewed.UTC().Format(microTime)
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return c.ask(ctx, call{method: http.MethodPatch, path: leasePath(namespace) + "/" + url.PathEscape(l.Name),
		query: url.Values{"fieldManager": {"tombolo"}, "force": {"true"}}, kind: applyPatch, body: body}, nil)
}

// DeleteLease removes a lease.
func (c *Client) DeleteLease(ctx context.Context, namespace, name string) error {
	return c.ask(ctx, call{method: http.MethodDelete, path: leasePath(namespace) + "/" + url.PathEscape(name)}, nil)
}
