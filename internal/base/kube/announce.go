// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// fieldManager is our name in managedFields: fields that we no longer apply are removed,
// fields of other managers stay.
const fieldManager = "tombolo"

// announcer keeps the Member object of this node up to date, and the annotations of its
// Node if configured.
type announcer struct {
	client      *Client
	log         *slog.Logger
	clock       func() time.Time
	random      func() float64
	node        string
	lease       time.Duration
	annotations bool // write the annotations
	object      bool // write the object
	self        func() member.Facts
	changed     <-chan struct{}
	lost        chan struct{} // somebody removed our object

	mu      sync.Mutex
	contact time.Time
	err     error
	told    fault.Code
	refused int  // consecutive refusals that an older kind can explain
	older   bool // the kind is an older one, and that was logged
}

// run announces at once, at each change, and every third of the lease.
func (a *announcer) run(ctx context.Context) error {
	var failed tries
	for ctx.Err() == nil {
		err := a.announce(ctx)
		if ctx.Err() != nil {
			break
		}
		a.report(err)
		pause := a.lease/3 - time.Duration(a.random()*float64(a.lease/30))
		if err == nil {
			failed = tries{}
		} else {
			pause = min(pause, retry(err, failed.next(err), a.random()))
		}
		if !a.pause(ctx, pause) {
			break
		}
	}
	return nil
}

// pause waits for a change, or for d.
func (a *announcer) pause(ctx context.Context, d time.Duration) bool {
	if !run.Wait(ctx, min(kubeWriteGap, d)) { // a burst of changes is written at once
		return false
	}
	t := time.NewTimer(d - min(kubeWriteGap, d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-a.lost:
	case <-a.changed:
	}
	return true
}

// gone notes that our object was removed by somebody else.
func (a *announcer) gone() {
	select {
	case a.lost <- struct{}{}:
	default: // already noted
	}
}

// nodeObject has the fields that are read of our own Node.
type nodeObject struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// announce writes this node's facts.
func (a *announcer) announce(ctx context.Context) error {
	facts := a.self()
	at := nodesPath + "/" + url.PathEscape(a.node)
	var node nodeObject
	err := a.client.ask(ctx, call{method: http.MethodGet, path: at, accept: asMetadata}, &node)
	if Answered(err) == http.StatusNotFound {
		return fault.Newf(fault.CodeNotFound, "Kubernetes has no Node %q to announce", a.node).Because(err).
			Hint("the node's name must be that of its Node: kubectl get nodes")
	}
	if err != nil {
		return err
	}
	if a.object {
		err = a.put(ctx, node.Metadata.UID, facts)
	}
	if !a.annotations {
		return err
	}
	return errors.Join(err, a.annotate(ctx, at, facts, node))
}

// put writes the object. A kind that an older release applied lacks the newest fields,
// and the API server then refuses the whole object: put writes it without them, so that
// an upgrade of the nodes cuts no node off. That needs repeated refusals: an API server
// in trouble refuses as well, and fields that it has already would be removed.
func (a *announcer) put(ctx context.Context, uid string, facts member.Facts) error {
	err := a.client.PutMember(ctx, a.node, uid, facts, a.lease)
	switch Answered(err) {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
	default:
		a.refused = 0
		return err
	}
	if a.refused++; a.refused < 2 {
		return err
	}
	for _, k := range olderKinds() {
		k.without(&facts)
		if a.client.PutMember(ctx, a.node, uid, facts, a.lease) != nil {
			continue
		}
		if !a.older {
			a.older = true
			a.log.Warn("the kind Member is older than this release: this node's object lacks fields", "fields", k.fields,
				telemetry.AttrReason, err, "next", "apply the kind Member again ('tombolo discovery manifest' prints it): "+
					"members that know this node from Kubernetes alone "+k.effect)
		}
		return nil
	}
	return err
}

// olderKind is a form of the kind Member in which fields are missing.
type olderKind struct {
	without        func(*member.Facts)
	fields, effect string
}

// olderKinds are those of earlier releases, the newest first.
func olderKinds() []olderKind {
	return []olderKind{
		{func(f *member.Facts) { f.Pin, f.Engine = member.Pin{}, "" }, "pin, engine",
			"take it for one with WireGuard"},
		{func(f *member.Facts) { f.Node, f.Clusters = "", nil }, "node, clusters",
			"use no relay to it and do not notice another secret"},
	}
}

// annotate writes the annotations that differ, if readers would accept them.
// A patch never makes a Node.
func (a *announcer) annotate(ctx context.Context, at string, facts member.Facts, node nodeObject) error {
	want := roster.WriteAnnotations(facts)
	if _, _, err := roster.ReadAnnotations("own", a.node, want); err != nil {
		return err
	}
	change := map[string]*string{}
	for name, value := range want {
		have, there := node.Metadata.Annotations[name]
		switch {
		case value == "" && there:
			change[name] = nil // removes it
		case value != "" && (!there || have != value):
			change[name] = &value
		}
	}
	return a.patch(ctx, at, change)
}

// patch changes annotations of this machine's Node; nil removes one.
func (a *announcer) patch(ctx context.Context, at string, change map[string]*string) error {
	if len(change) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": change}})
	if err != nil {
		return err
	}
	return a.client.ask(ctx, call{method: http.MethodPatch, path: at, kind: mergePatch, accept: asMetadata, body: body,
		query: url.Values{"fieldManager": {fieldManager}}}, nil)
}

// leave removes what was written: the object, and the annotations that still have our
// values.
func (a *announcer) leave(ctx context.Context) error {
	var gone error
	if a.object {
		gone = a.client.DeleteMember(ctx, a.node)
	}
	if !a.annotations {
		return gone
	}
	at := nodesPath + "/" + url.PathEscape(a.node)
	var node nodeObject
	err := a.client.ask(ctx, call{method: http.MethodGet, path: at, accept: asMetadata}, &node)
	if Answered(err) == http.StatusNotFound {
		return gone // the annotations went with the Node
	}
	change := map[string]*string{}
	for name, value := range roster.WriteAnnotations(a.self()) {
		if value != "" && node.Metadata.Annotations[name] == value {
			change[name] = nil
		}
	}
	if err == nil {
		err = a.patch(ctx, at, change)
	}
	return errors.Join(gone, err)
}

// applied is a Member object as it is written.
type applied struct {
	v1alpha1.TypeMeta
	Metadata struct {
		Name   string  `json:"name"`
		Owners []owner `json:"ownerReferences"`
	} `json:"metadata"`
	Spec v1alpha1.MemberObjectSpec `json:"spec"`
}

// owner makes Kubernetes remove the object with the Node.
type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// PutMember writes the whole Member object of a node with a renewed lease. Kubernetes
// removes the object with the Node that has the uid.
func (c *Client) PutMember(ctx context.Context, node, uid string, facts member.Facts, lease time.Duration) error {
	m, err := memberObject(node, uid, facts, time.Now(), lease)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.ask(ctx, call{
		method: http.MethodPatch, path: membersPath + "/" + url.PathEscape(node), kind: applyPatch, body: body,
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
	}, nil)
}

// DeleteMember removes the Member object of a node, if there is one.
func (c *Client) DeleteMember(ctx context.Context, node string) error {
	err := c.ask(ctx, call{method: http.MethodDelete, path: membersPath + "/" + url.PathEscape(node)}, nil)
	if Answered(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// memberObject is the Member object of a node; it refuses facts that readers would refuse.
func memberObject(node, uid string, facts member.Facts, now time.Time, lease time.Duration) (applied, error) {
	var out applied
	out.APIVersion, out.Kind = v1alpha1.Version, v1alpha1.KindMember
	out.Metadata.Name = node
	out.Metadata.Owners = []owner{{"v1", "Node", node, uid}}
	out.Spec.MemberSpec, out.Spec.MemberLabels = roster.Spec(facts), roster.Labels(facts)
	out.Spec.Nodename = node
	out.Spec.RenewTime = now.UTC().Format("2006-01-02T15:04:05.000000Z")
	out.Spec.LeaseSeconds = int(lease / time.Second)
	for name, n := range map[string]int{"addresses": len(out.Spec.Addresses), "ranges": len(out.Spec.Ranges),
		"excluded": len(out.Spec.Excluded)} {
		if n > limit.DiscoveryFacts {
			return applied{}, fault.Newf(fault.CodeLimit, "this node has %d %s", n, name).
				Whyf("a Member object holds %d", limit.DiscoveryFacts).Hint("announce fewer: ranges can be joined")
		}
	}
	if over := len(out.Spec.Endpoints) - limit.DiscoveryEndpoints; over > 0 {
		out.Spec.Endpoints = out.Spec.Endpoints[:limit.DiscoveryEndpoints] // enough to be reached by
	}
	_, err := roster.ReadMember("own", now, v1alpha1.Member{Metadata: v1alpha1.MemberMeta{Name: node}, Spec: out.Spec})
	return out, err
}

func (a *announcer) report(err error) {
	a.mu.Lock()
	a.err = err
	if err == nil {
		a.contact, a.told = a.clock(), ""
		a.mu.Unlock()
		return
	}
	x := fault.From(err)
	quiet := a.told == x.Code
	a.told = x.Code
	a.mu.Unlock()
	if !quiet {
		a.log.Warn("this node cannot be announced to Kubernetes", telemetry.AttrCode, x.Code,
			telemetry.AttrReason, x.Explain())
	}
}
