// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// lastVersionEver is of the removal of a key that another one has succeeded: no
// entry of it can follow.
const lastVersionEver = math.MaxInt64

// identity is a member's key, and whose place it has taken. All of it is one
// file, so that whatever a crash leaves is the old key or the new one.
type identity struct {
	key seal.MemberKey
	old seal.MemberKey // zero but until all services know that it is over
	// past is the old key's word for each cluster that it was in. It stands in each
	// entry, so that nothing of the old key counts beside it.
	past []succession
}

type succession struct {
	cluster seal.ClusterID
	word    *discovery.Succession
}

// The words that begin the further lines of the file.
const (
	oldWord  = "old"
	pastWord = "past"
)

// encode is the text of the file: the key, the old one, and its words.
func (i identity) encode() []byte {
	out := i.key.Encode() + "\n"
	if !i.old.IsZero() {
		out += oldWord + " " + i.old.Encode() + "\n"
	}
	b64 := base64.StdEncoding
	for _, p := range i.past {
		out += fmt.Sprintf("%s %s %s %s\n", pastWord, p.cluster, b64.EncodeToString(p.word.GetOldMember()),
			b64.EncodeToString(p.word.GetSignature()))
	}
	return []byte(out)
}

// parseIdentity reads what encode writes, and checks every signature.
func parseIdentity(text string) (identity, error) {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	key, err := seal.ParseMemberKey(first)
	if err != nil {
		return identity{}, err
	}
	i := identity{key: key}
	for n, line := range strings.FieldsFunc(rest, func(r rune) bool { return r == '\n' }) {
		if err := i.line(strings.Fields(line)); err != nil {
			return identity{}, fault.New(fault.CodeSecret, "the member's key cannot be read").Whyf("line %d: %v", n+2, err).
				Hint("keep its first line alone: that is the key; whom it succeeds is forgotten")
		}
	}
	return i, nil
}

func (i *identity) line(words []string) error {
	switch {
	case len(words) == 2 && words[0] == oldWord && i.old.IsZero():
		old, err := seal.ParseMemberKey(words[1])
		if err == nil && old.ID() == i.key.ID() {
			err = errors.New("the old key is the new one")
		}
		i.old = old
		return err
	case len(words) == 4 && words[0] == pastWord && len(i.past) < limit.ClusterSecrets:
		cluster, err := seal.ParseClusterID(words[1])
		if err != nil {
			return err
		}
		old, err1 := base64.StdEncoding.Strict().DecodeString(words[2])
		signature, err2 := base64.StdEncoding.Strict().DecodeString(words[3])
		word := &discovery.Succession{OldMember: old, Signature: signature}
		if err := errors.Join(err1, err2); err != nil || len(old) != ed25519.PublicKeySize {
			return errors.New("it is no succession")
		}
		if _, err := seal.VerifySuccession(cluster, &discovery.Entry{Member: i.key.Public(), Succession: word}); err != nil {
			return err
		}
		i.past = append(i.past, succession{cluster, word})
		return nil
	}
	return errors.New("it is not known")
}

// succession is what an entry of a cluster carries: nil if this key began there.
func (i identity) succession(k seal.Keys) *discovery.Succession {
	at := slices.IndexFunc(i.past, func(p succession) bool { return p.cluster == k.Cluster() })
	switch {
	case at >= 0:
		return i.past[at].word
	case !i.old.IsZero():
		return k.Succeed(i.old, i.key.ID())
	}
	return nil
}

// before is the member whose place this one has taken; empty: nobody's.
func (i identity) before() string {
	switch {
	case !i.old.IsZero():
		return i.old.ID().String()
	case len(i.past) > 0:
		return seal.MemberOf(i.past[0].word.GetOldMember()).String()
	}
	return ""
}

// forget leaves out the old key itself and keeps its words.
func (i identity) forget(keys []seal.Keys) identity {
	next := identity{key: i.key}
	for _, k := range keys {
		if s := i.succession(k); s != nil {
			next.past = append(next.past, succession{k.Cluster(), s})
		}
	}
	return next
}

// readIdentity reads the member's key, or draws one if there is none yet.
func readIdentity(dir string) (identity, error) {
	path := filepath.Join(dir, keyFile)
	text, err := readState(path)
	if err == nil {
		return parseIdentity(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return identity{}, err
	}
	key, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		return identity{}, err
	}
	i := identity{key: key}
	return i, writeFile(path, i.encode())
}

// Rotation is what became of a member's key.
type Rotation struct{ Old, New seal.MemberID }

// Own is the member of a configuration, and whom it succeeds while services are
// told of that (zero: nobody).
func Own(cfg Config) (Rotation, error) {
	text, err := readState(filepath.Join(cfg.StateDir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Rotation{}, noMember(cfg.StateDir, err)
	}
	if err != nil {
		return Rotation{}, err
	}
	now, err := parseIdentity(text)
	if err != nil {
		return Rotation{}, err
	}
	r := Rotation{New: now.key.ID()}
	if !now.old.IsZero() {
		r.Old = now.old.ID()
	}
	return r, nil
}

// Rotate draws a new key for the member of a configuration. It is one file that
// changes at once; who runs the member finds it there.
func Rotate(cfg Config) (Rotation, error) { return rotate(cfg, noCrash) }

func rotate(cfg Config, at step) (r Rotation, err error) {
	err = changeIdentity(cfg.StateDir, at, func(now identity) (identity, error) {
		if !now.old.IsZero() {
			return now, fault.New(fault.CodeStateBusy, "the key is not rotated").
				Whyf("member %s has not told every service yet that %s is over", now.key.ID(), now.old.ID()).
				Hint("run 'tombolo discovery announce': it takes until all services have answered, and 30 minutes at most")
		}
		key, err := seal.NewMemberKey(rand.Reader)
		if err != nil {
			return now, err
		}
		next := identity{key: key, old: now.key}
		next.past = next.forget(cfg.keys).past
		r = Rotation{Old: now.key.ID(), New: key.ID()}
		return next, nil
	})
	return r, err
}

// changeIdentity changes the file of a member that has one, one process at a time.
func changeIdentity(dir string, at step, change func(identity) (identity, error)) error {
	path := filepath.Join(dir, keyFile)
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return noMember(dir, err)
	}
	if err != nil {
		return fault.Newf(fault.CodeStateAccess, "%s cannot be used", dir).Because(err).
			Hint("run it as the user of the member")
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fault.Newf(fault.CodeStateBusy, "the member's key in %s is not changed", dir).
			Whyf("another process changes it").Hint("try it again")
	}
	text, err := readState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noMember(dir, err)
	}
	if err != nil {
		return err
	}
	now, err := parseIdentity(text)
	if err != nil {
		return err
	}
	next, err := change(now)
	if err != nil {
		return err
	}
	return writeFileBy(path, next.encode(), at)
}

func noMember(dir string, err error) error {
	return fault.Newf(fault.CodeNotFound, "there is no member's key in %s", dir).Because(err).
		Hint("'tombolo discovery announce' draws one when it starts first; compare node.stateDir")
}
