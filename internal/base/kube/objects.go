// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Objects follows the objects of one kind and hands them over as they are: a list, then a watch
// from there on, as a follower does.
type Objects struct {
	client *Client
	log    *slog.Logger
	what   collection
}

// NewTenants follows the EdgeTenants of a namespace; empty: of all.
func NewTenants(client *Client, log *slog.Logger, namespace string) *Objects {
	path := tenantsPath
	if namespace != "" {
		path = group + "/namespaces/" + namespace + "/" + tenantsKind
	}
	return &Objects{client: client, log: log, what: collection{path: path, list: asJSON, object: asJSON}}
}

// NewClusters follows the objects of linked clusters.
func NewClusters(client *Client, log *slog.Logger) *Objects { return newWide(client, log, "clusters") }

// NewClusterNodes follows their nodes.
func NewClusterNodes(client *Client, log *slog.Logger) *Objects {
	return newWide(client, log, "clusternodes")
}

// newWide follows a kind of ours of scope Cluster.
func newWide(client *Client, log *slog.Logger, kind string) *Objects {
	return &Objects{client: client, log: log, what: collection{path: group + "/" + kind, list: asJSON, object: asJSON}}
}

// NewConfigMaps follows the ConfigMaps of a namespace that have some labels, NAME=VALUE,...
func NewConfigMaps(client *Client, log *slog.Logger, namespace, labels string) *Objects {
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	return &Objects{client: client, log: log, what: collection{path: path, list: asJSON, object: asJSON, labels: labels}}
}

const (
	group       = "/apis/tombolo.dev/v1alpha1"
	tenantsKind = "edgetenants"
	tenantsPath = group + "/" + tenantsKind
)

// Receiver takes what Objects find out, one call at a time.
type Receiver interface {
	// Whole has all objects by namespace/name. Those of a list that is cut short say nothing about others.
	Whole(all map[string]json.RawMessage, cut bool)
	// One is a change; without raw the object is gone.
	One(name string, raw json.RawMessage)
	// Away says why the API server cannot be read; nil: it can, and all that it has is handed over.
	Away(why error)
}

// Run follows until ctx ends.
func (o *Objects) Run(ctx context.Context, to Receiver) error {
	defer o.client.Close()
	version, told := "", fault.Code("")
	var failed tries
	for ctx.Err() == nil {
		begin := time.Now()
		err := o.turn(ctx, &version, to, func() { told = "" })
		if ctx.Err() != nil {
			break
		}
		if x := fault.From(err); x != nil && Answered(err) != http.StatusGone && !errors.Is(err, errPartial) {
			to.Away(err)
			if x.Code != told {
				o.log.Warn("Kubernetes cannot be read", telemetry.AttrCode, x.Code, telemetry.AttrReason, x.Explain())
			}
			told = x.Code
		}
		if time.Since(begin) >= kubeSettled {
			failed = tries{}
		}
		if !run.Wait(ctx, retry(err, failed.next(err), rand.Float64())) {
			break
		}
	}
	return nil
}

// turn lists if necessary, and watches once.
func (o *Objects) turn(ctx context.Context, version *string, to Receiver, met func()) error {
	if *version == "" {
		all := map[string]json.RawMessage{}
		what := o.what
		what.read = func(_ time.Time, raw json.RawMessage) object {
			if name := nameOf(raw); name != "" {
				all[name] = raw
			}
			return object{}
		}
		l, err := o.client.list(ctx, what, time.Now)
		if err != nil {
			return err
		}
		if l.over {
			o.log.Warn("Kubernetes has more objects than are read", telemetry.AttrCode, fault.CodeLimit, "path", o.what.path,
				"bound", kubeObjects)
		}
		to.Whole(all, l.over)
		to.Away(nil)
		*version = l.version
	}
	lasts := kubeWatch + rand.N(kubeWatch)
	next, err := o.client.watch(ctx, o.what, *version, lasts, func(kind string, raw json.RawMessage) {
		met()
		to.Away(nil)
		switch name := nameOf(raw); {
		case kind == eventBookmark || name == "": // the API server answers
		case kind == eventDeleted:
			to.One(name, nil)
		default:
			to.One(name, raw)
		}
	})
	if *version = next; Answered(err) == http.StatusGone {
		*version = ""
	}
	return err
}

// nameOf is namespace/name of an object, empty if it has none.
func nameOf(raw json.RawMessage) string {
	var h struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &h) != nil || h.Metadata.Name == "" {
		return ""
	}
	return h.Metadata.Namespace + "/" + h.Metadata.Name
}
