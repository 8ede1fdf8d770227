// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// How a new key takes over (docs/reference/discovery-wire.md, section 2):
//
//	file changes ─▶ entries by the new key, with its succession ─▶ sessions by it, beside the old ones
//	                   └─ taken by a service ─▶ there: the removal by the old key
//	                        └─ all services, or the longest lease later ─▶ the old key is forgotten

// rotation follows the key file: it takes over a new key, and forgets the old one.
type rotation struct {
	*news
	dir  string
	self *announcer
	subs *subscriptions
	log  *slog.Logger
}

// run looks at the member's key, and forgets the old one when it is over.
func (r *rotation) run(ctx context.Context) error {
	since := time.Now()
	taken := "" // the file as it was taken: nothing is derived from it again
	for complained := ""; run.Wait(ctx, lookInterval); {
		text, err := readState(filepath.Join(r.dir, keyFile))
		changed := false
		if err == nil && text != taken {
			if changed, err = r.takeKey(time.Now(), text); err == nil {
				taken = text
			}
		}
		if changed {
			since = time.Now()
		}
		if err == nil {
			err = r.forgetOld(time.Since(since) >= limit.DiscoveryTTL)
		}
		if why := junkReason(err); why != complained {
			if complained = why; err != nil {
				r.log.Warn("the member's key stays as it is", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, why)
			}
		}
	}
	return nil
}

// takeKey continues under the key of the file, if it succeeds the current one.
func (r *rotation) takeKey(now time.Time, text string) (changed bool, err error) {
	next, err := parseIdentity(text)
	if err != nil {
		return false, err
	}
	w, _ := r.self.current()
	have := w.id.key.ID()
	if next.key.ID() == have {
		return false, nil
	}
	if next.old.IsZero() || next.old.ID() != have {
		return false, fault.New(fault.CodeStateCorrupt, "the member's key was changed by hand").
			Whyf("member %s does not succeed %s, which runs here", next.key.ID(), have).
			Hint("restart the member to take it; 'tombolo discovery member rotate' makes one that succeeds")
	}
	if err := r.self.succeed(now, next); err != nil {
		return false, err
	}
	r.log.Info("this member continues under a new key", "old", have.String(), "new", next.key.ID().String())
	r.changed()
	return true, nil
}

// forgetOld removes the old key from the disk once all services know that it is
// over, or it could not be alive anywhere any more.
func (r *rotation) forgetOld(late bool) error {
	w, _ := r.self.current()
	if w.id.old.IsZero() {
		return nil
	}
	for _, c := range r.subs.all() {
		if told := c.retired.Load(); !late && (told == nil || *told != w.id.old.ID()) {
			return nil
		}
	}
	next := w.id.forget(r.subs.keys())
	err := changeIdentity(r.dir, noCrash, func(now identity) (identity, error) {
		if now.key.ID() != next.key.ID() {
			return now, nil
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	r.log.Info("the old key of this member is over", "old", w.id.old.ID().String())
	return r.self.succeed(time.Now(), next)
}

// wasTaken says that a service has taken an announcement of a key of ours.
func (c *subscription) wasTaken(of seal.MemberID) {
	c.takenOf.Store(&of)
	select {
	case c.taken <- struct{}{}:
	default:
	}
}

// retire removes the entry of our old key at a service that has taken one of the new.
func (c *subscription) retire(ctx context.Context) {
	for {
		select {
		case <-c.taken:
		case <-ctx.Done():
			return
		}
		for tries := 0; ; tries++ {
			w, _ := c.self.current()
			if of := c.takenOf.Load(); w.id.old.IsZero() || of == nil || *of != w.id.key.ID() {
				break // make before break
			}
			old := w.id.old.ID()
			if told := c.retired.Load(); told != nil && *told == old {
				break
			}
			err := c.remove(ctx, w.id.old, lastVersionEver)
			if err == nil {
				c.retired.Store(&old)
				break
			}
			c.log.Debug("the old key of this member is not over yet", "service", c.service.Name,
				telemetry.AttrReason, junkReason(c.explain(err)))
			if !run.Wait(ctx, run.Backoff(tries, limit.DiscoveryBackoff, rand.Float64())) {
				return
			}
		}
	}
}

// remove attends as a key of ours, for its removal alone. A service of the older
// protocol knows no keys of members.
func (c *subscription) remove(ctx context.Context, as seal.MemberKey, version uint64) error {
	if c.service.Protocol == ProtocolSidero {
		return nil
	}
	conn, err := c.connect(c.service.place, ProtocolNative)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	stream, err := discovery.NewDiscoveryClient(conn).Attend(ctx)
	if err != nil {
		return err
	}
	proven := false
	for {
		f, err := stream.Recv()
		switch {
		case status.Code(err) == codes.Unimplemented && c.service.Protocol == ProtocolAuto:
			return nil
		case err != nil:
			return err
		case f.GetChallenge() != nil && !proven:
			proof, err := c.prove(f.GetChallenge(), as)
			if err != nil {
				return err
			}
			proven, err = true, stream.Send(proof)
			if err != nil {
				return err
			}
		case f.GetWelcome() != nil && proven:
			removal := c.keys.Remove(as, version, boundsOf(f.GetWelcome()).ttl)
			put := &discovery.FromMember_Put{Put: &discovery.Put{Entry: removal}}
			if err := stream.Send(&discovery.FromMember{Frame: put}); err != nil {
				return err
			}
		case f.GetAck().GetVersion() == version:
			return nil
		case f.GetRefusal() != nil:
			return c.refusal(f.GetRefusal())
		}
	}
}
