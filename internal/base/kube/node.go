// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Node has the facts about this machine's own Node.
type Node struct {
	UID string // empty: there is no such Node
	// PodCIDRs are the ranges of its pods, unchecked. There may be one more than the
	// limit, so that a check can see that the limit is exceeded.
	PodCIDRs []string
}

// ownNode follows this machine's Node, and reports it each time that the API server confirms
// it, even unchanged: so the receiver knows how old the information is.
//
//	list of the Node ─► watch of the Node ─┐ it ended
//	      ▲  └─ denied ─► get, each 30 s ──┤
//	      └────────────────────────────────┘
//
// A kubelet may list and watch its own Node; a service account's role cannot be restricted to
// one Node, so its pods may only get Nodes by name.
type ownNode struct {
	client *Client
	log    *slog.Logger
	clock  func() time.Time
	random func() float64
	node   string
	tell   func(Node)

	denied time.Time // when it could get but not list; zero: it can list
	bare   int       // consecutive gets without ranges

	mu      sync.Mutex
	contact time.Time
	err     error
	told    fault.Code
	last    Node // reported last
}

// ownNodeOf is the collection with only this Node.
func ownNodeOf(name string) collection {
	return collection{path: nodesPath, list: asJSON, object: asJSON, fields: "metadata.name=" + name}
}

// run follows until ctx ends.
func (o *ownNode) run(ctx context.Context) error {
	var failed tries
	for ctx.Err() == nil {
		begin := o.clock()
		pause, err := o.turn(ctx)
		if ctx.Err() != nil {
			break
		}
		o.report(err)
		if o.clock().Sub(begin) >= kubeSettled {
			failed = tries{}
		}
		if err != nil {
			pause = min(retry(err, failed.next(err), o.random()), kubePoll)
		}
		if !run.Wait(ctx, pause) {
			break
		}
	}
	return nil
}

// turn reads the Node once, and watches it if it may. It returns how long to wait before
// the next turn.
func (o *ownNode) turn(ctx context.Context) (time.Duration, error) {
	what := ownNodeOf(o.node)
	if !o.denied.IsZero() && o.clock().Sub(o.denied) < kubeWatch {
		return o.poll(ctx)
	}
	page, err := o.client.page(ctx, what, 1, "")
	if Answered(err) == http.StatusForbidden {
		pause, err := o.poll(ctx)
		if err == nil { // an API server that has just started refuses everything for a moment
			o.denied = o.clock()
		}
		return pause, err
	}
	if err != nil {
		return 0, err
	}
	o.denied = time.Time{}
	n, err := o.among(page.Items)
	if err != nil {
		return 0, err
	}
	o.say(n)
	lasts := kubeWatch + time.Duration(o.random()*float64(kubeWatch))
	_, err = o.client.watch(ctx, what, page.Metadata.ResourceVersion, lasts, o.event)
	if Answered(err) == http.StatusGone {
		err = nil // the next turn lists again
	}
	return kubeRetryFirst, err
}

// poll gets the Node by its name.
func (o *ownNode) poll(ctx context.Context) (time.Duration, error) {
	var raw json.RawMessage
	err := o.client.ask(ctx, call{method: http.MethodGet, path: nodesPath + "/" + url.PathEscape(o.node)}, &raw)
	n := Node{}
	switch {
	case Answered(err) == http.StatusNotFound:
	case err != nil:
		return 0, err
	default:
		if _, n, err = readOwn(raw); err != nil {
			return 0, err
		}
	}
	o.say(n)
	if len(n.PodCIDRs) == 0 { // the ranges come soon after the Node
		o.bare++
		return min(retry(nil, o.bare-1, o.random()), kubePoll), nil
	}
	o.bare = 0
	return kubePoll/2 + time.Duration(o.random()*float64(kubePoll))/2, nil
}

// among finds the Node in a list, which a server that ignores field selectors may return of
// all Nodes.
func (o *ownNode) among(items []json.RawMessage) (Node, error) {
	for _, raw := range items {
		if name, n, err := readOwn(raw); err != nil || name == o.node {
			return n, err
		}
	}
	return Node{}, nil
}

// event takes one event of a watch. A bookmark confirms the last report, except for a Node
// that could not be read since.
func (o *ownNode) event(kind string, raw json.RawMessage) {
	if kind == eventBookmark {
		o.mu.Lock()
		n, holds := o.last, o.err == nil
		o.mu.Unlock()
		if holds {
			o.say(n)
		}
		return
	}
	name, n, err := readOwn(raw)
	switch {
	case err != nil:
		o.report(err)
		return
	case name != o.node:
		return
	case kind == eventDeleted:
		n = Node{}
	}
	o.say(n)
}

// say reports what the API server has just confirmed.
func (o *ownNode) say(n Node) {
	o.mu.Lock()
	o.contact, o.err, o.told, o.last = o.clock(), nil, "", n
	o.mu.Unlock()
	o.tell(n)
}

// readOwn parses our fields of a Node. Kubernetes 1.16 replaced the single range by a list;
// if the list is empty the single range counts.
func readOwn(raw json.RawMessage) (name string, n Node, err error) {
	var o struct {
		Metadata struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			PodCIDR  string   `json:"podCIDR"`
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil || o.Metadata.UID == "" {
		return "", Node{}, fault.New(fault.CodeAnnotation, "this machine's Node in Kubernetes cannot be read").Because(err).
			Hint("what is known of it stays")
	}
	ranges := o.Spec.PodCIDRs
	if len(ranges) == 0 && o.Spec.PodCIDR != "" {
		ranges = []string{o.Spec.PodCIDR}
	}
	ranges = ranges[:min(len(ranges), limit.PodRanges+1)]
	for i, r := range ranges {
		ranges[i] = r[:min(len(r), limit.PodRangeText)]
	}
	return o.Metadata.Name, Node{UID: o.Metadata.UID, PodCIDRs: ranges}, nil
}

// report notes how a turn ended, and logs a failure once.
func (o *ownNode) report(err error) {
	if err == nil {
		return
	}
	x := fault.From(err)
	o.mu.Lock()
	o.err = err
	quiet := o.told == x.Code
	o.told = x.Code
	o.mu.Unlock()
	if !quiet {
		o.log.Warn("this machine's Node in Kubernetes cannot be read", telemetry.AttrCode, x.Code,
			telemetry.AttrReason, x.Explain())
	}
}

func (o *ownNode) part() Part {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Part{Own: true, Contact: o.contact, Err: o.err}
}
