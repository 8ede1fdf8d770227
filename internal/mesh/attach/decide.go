// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

const roleNode = id.RoleNode

// judge says whether a stored identity is that of the node, and fits the join line.
func judge(cfg Config, me *enrol.Identity, line *trust.Join) error {
	file := filepath.Join(cfg.StateDir, enrol.File)
	for _, at := range cfg.Hubs {
		if _, err := policy.ParseTarget(at); err != nil {
			return fault.Newf(fault.CodeConfig, "the address of a hub, %q, cannot be used", at).Because(err).
				Hint("mesh.hubs has host:port")
		}
	}
	if line == nil && !me.Joined() {
		return nil // it has no relay
	}
	if _, err := id.ParseNode(cfg.Node); err != nil {
		return fault.Newf(fault.CodeConfig, "node.name %q cannot be that of a certificate", cfg.Node).Because(err).
			Hint("labels of a-z, 0-9 and '-' with dots between them")
	}
	if !me.Joined() {
		return nil
	}
	if me.Who.Role != roleNode {
		return fault.Newf(fault.CodeCertInvalid, "the identity in %s is not that of a node", file).Whyf("it is %s", me.Who).
			Hint("give the node a node.stateDir of its own")
	}
	if me.Who.Name != cfg.Node {
		return fault.Newf(fault.CodeConfig, "node.name is %s, and the certificate in %s is of %s",
			cfg.Node, file, me.Who.Name).
			Whyf("peers know a node at hubs by the name of its certificate").
			Hint("correct node.name, or remove that file and join again: tombolo token create --cluster %s --node",
				me.Who.Cluster)
	}
	if line != nil && !me.Fits(*line) {
		return fault.Newf(fault.CodeJoinLine, "the identity in %s belongs to another hub or cluster", file).
			Whyf("it is %s, the join line is for cluster %s", me.Who, line.Cluster).
			Hint("remove that file, and nothing else of the directory, to join again")
	}
	return nil
}

// task is what is to be done about the certificate.
type task string

const (
	idle  task = "idle"  // there is no line to join with
	join  task = "join"  // with the line
	renew task = "renew" // in time
	later task = "later" // refused for good, with no other token: look again after a while
)

// next decides. A stored identity wins over the line, unless hubs do not want it any
// more and the line has another token than the one that it came from: a token that
// was used before must not undo a revocation by itself.
func next(me *enrol.Identity, line *trust.Join, barred bool) task {
	switch {
	case line != nil && (!me.Joined() || barred && line.TokenID != me.Token):
		return join
	case !me.Joined():
		return idle
	case barred:
		return later
	}
	return renew
}

// final says whether a refusal to renew means that the identity is of no use any more.
func final(c fault.Code) bool {
	return c == fault.CodeCertRevoked || c == fault.CodeCertExpired || c == fault.CodeNodeTaken
}

// passing says whether a failure to join may be over any moment.
func passing(c fault.Code) bool {
	return c == fault.CodeHubAway || c == fault.CodeDraining || c == fault.CodeLimit || c == fault.CodeInternal ||
		c == fault.CodeStateAccess
}

// spent says whether a hub, which has shown that it has the pinned CA, has refused a line
// for good: only another line helps.
func spent(c fault.Code) bool {
	switch c {
	case fault.CodeJoinLine, fault.CodeTokenUnknown, fault.CodeTokenExpired, fault.CodeTokenUsed, fault.CodeCertRevoked:
		return true
	}
	return false
}

// pause is the wait after a failure to join that is not for good, try counting from 0. A
// name is free soon after it was revoked, and clocks are put right.
func pause(f *fault.Fault, try int, random float64) time.Duration {
	most := limit.AttachRefused
	if passing(f.Code) {
		most = limit.BackoffMost
	}
	return run.Backoff(try, most, random)
}
