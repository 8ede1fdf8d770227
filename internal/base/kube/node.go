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

// Node is what the API server says of this machine's own Node.
type Node struct {
	UID string // empty: there is no such Node
	// PodCIDRs are the ranges of its pods as they stand there. Nobody has checked them, and
	// there may be one more than the limit, so that who checks them sees that there are.
	PodCIDRs []string
}

// ownNode follows the one Node, and reports it each time that the API server says what it
// is, also if nothing is new: so who listens knows for how long it was not said again.
//
//	list of the one ──► watch of the one ──┐ it ended
//	      ▲  └─ denied ─► get, each 30 s ──┤
//	      └────────────────────────────────┘
//
// A kubelet may list and watch its own Node; a role of a service account cannot be bound to one, so
// that its pods may get each Node by its name, and no more.
type ownNode struct {
	client *Client
	log    *slog.Logger
	clock  func() time.Time
	random func() float64
	node   string
	tell   func(Node)

	denied time.Time // when it was let get, and not list; zero: it may
	bare   int       // how often in a row it was got without ranges

	mu      sync.Mutex
	contact time.Time
	err     error
	told    fault.Code
	last    Node // that was told
}

// ownNodeOf is the collection of the one Node.
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

// turn reads the Node once, and follows it as far as it may. It gives how long to wait
// before the next one.
func (o *ownNode) turn(ctx context.Context) (time.Duration, error) {
	what := ownNodeOf(o.node)
	if !o.denied.IsZero() && o.clock().Sub(o.denied) < kubeWatch {
		return o.poll(ctx)
	}
	page, err := o.client.page(ctx, what, 1, "")
	if answered(err) == http.StatusForbidden {
		pause, err := o.poll(ctx)
		if err == nil { // an API server that has just come up refuses all for a moment
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
	if answered(err) == http.StatusGone {
		err = nil // the next list has it
	}
	return kubeRetryFirst, err
}

// poll asks for the one Node by its name.
func (o *ownNode) poll(ctx context.Context) (time.Duration, error) {
	var raw json.RawMessage
	err := o.client.ask(ctx, call{method: http.MethodGet, path: nodesPath + "/" + url.PathEscape(o.node)}, &raw)
	n := Node{}
	switch {
	case answered(err) == http.StatusNotFound:
	case err != nil:
		return 0, err
	default:
		if _, n, err = readOwn(raw); err != nil {
			return 0, err
		}
	}
	o.say(n)
	if len(n.PodCIDRs) == 0 { // they come soon after the Node
		o.bare++
		return min(retry(nil, o.bare-1, o.random()), kubePoll), nil
	}
	o.bare = 0
	return kubePoll/2 + time.Duration(o.random()*float64(kubePoll))/2, nil
}

// among finds the Node in a list, which a server that does not heed what is asked for may
// give of all nodes.
func (o *ownNode) among(items []json.RawMessage) (Node, error) {
	for _, raw := range items {
		if name, n, err := readOwn(raw); err != nil || name == o.node {
			return n, err
		}
	}
	return Node{}, nil
}

// event takes one event of a watch. A bookmark says that what was said last still holds, but
// not of a Node that could not be read since.
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

// say tells what the API server has just said.
func (o *ownNode) say(n Node) {
	o.mu.Lock()
	o.contact, o.err, o.told, o.last = o.clock(), nil, "", n
	o.mu.Unlock()
	o.tell(n)
}

// readOwn reads what we want of a Node. One list of ranges replaced the one range in
// Kubernetes 1.16; where the list is empty the one counts.
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

// report notes how a turn ended, and reports a failure once.
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
