// SPDX-License-Identifier: Apache-2.0

// Package joining links a cluster with others and unlinks it, with the credentials of the person who runs 'tombolo
// link': at the host cluster accounts and a line, at a member the objects that run the link. It does not decide what a
// new link waits for, or whether what was said of a cluster is right: package invite does. It does not run in a pod.
package joining

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/control/links/checking"
	"github.com/tombolo-io/tombolo/internal/control/links/explaining"
	"github.com/tombolo-io/tombolo/internal/link/explain"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

const (
	// answers is how long an API server may take for one answer.
	answers = 15 * time.Second
	// look is how often objects are read while something is awaited.
	look = time.Second
	// fieldOwner is who writes, as API servers note it.
	fieldOwner = "tombolo-link"
)

// Serve does one order that it reads as JSON, and writes the answer as JSON. What happens meanwhile it tells people, a
// line each.
//
//	read: what nodes understand of the objects of linked clusters
func Serve(ctx context.Context, in io.Reader, out, progress io.Writer, read explaining.Read) error {
	var answer invite.Answer
	data, err := io.ReadAll(io.LimitReader(in, invite.MostOrder+1))
	if err == nil && len(data) > invite.MostOrder {
		err = fault.New(fault.CodeUsage, "the order is too large").Hint("give fewer values")
	}
	if err == nil {
		answer, err = do(ctx, data, &teller{to: progress, now: time.Now}, read)
	}
	answer.Fault = invite.FaultOf(err)
	return json.NewEncoder(out).Encode(answer)
}

func do(ctx context.Context, data []byte, tell *teller, read explaining.Read) (out invite.Answer, err error) {
	var o invite.Order
	if err := json.Unmarshal(data, &o); err != nil {
		return out, fault.New(fault.CodeUsage, "the order cannot be read").Because(err).
			Hint("use tombolo and tombolo-controller of the same version")
	}
	at, err := fromFiles(o.Kubeconfig, o.Context)
	if err != nil {
		return out, err
	}
	switch {
	case o.Token != nil:
		out.Line, err = token(ctx, at, *o.Token, tell)
	case o.Join != nil:
		err = join(ctx, at, *o.Join, tell)
	case o.Unjoin != nil:
		err = unjoin(ctx, at, *o.Unjoin, tell)
	case o.List != nil:
		out.List, err = list(ctx, at, time.Now())
	case o.Check != nil:
		out.Checked, err = checking.Run(ctx, at.config, o.Check.Args, func(n, of int) {
			tell.say("%d of %d nodes have answered", n, of)
		})
	case o.Explain != nil:
		var way explain.Explanation
		way, err = explaining.Run(ctx, at, explaining.Question{From: o.Explain.From, To: o.Explain.To}, read)
		out.Way = &way
	default:
		err = fault.New(fault.CodeUsage, "the order says nothing").Hint("tombolo link --help")
	}
	return out, err
}

// teller tells people what happens. Where something is awaited, it says so once, and how long it took.
type teller struct {
	to    io.Writer
	now   func() time.Time
	last  string
	since time.Time
}

func (t *teller) say(format string, args ...any) {
	t.last = ""
	fmt.Fprintf(t.to, format+"\n", args...)
}

// waits tells what is awaited, if that is new.
func (t *teller) waits(text string) {
	if text == t.last {
		return
	}
	if t.last != "" {
		t.took()
	}
	fmt.Fprintln(t.to, text)
	t.last, t.since = text, t.now()
}

// took tells how long the last thing was awaited.
func (t *teller) took() {
	if d := t.now().Sub(t.since); t.last != "" && d >= look {
		fmt.Fprintf(t.to, "  after %s\n", d.Round(time.Second))
	}
	t.last = ""
}
