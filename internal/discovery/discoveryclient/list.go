// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Source reports what it states about members, all of it each time, until ctx ends. The last
// report counts.
type Source interface {
	Run(ctx context.Context, out func([]roster.Said)) error
}

// Reporter is a Source with a status, or with one for each of its parts.
type Reporter interface{ Status() []Status }

// listFile is a file of members. After a mistake the last good file keeps counting.
type listFile struct {
	path   string
	status statusBoard
	pairs  pairBook
	names  nameBook
}

func newListFile(path string, r Resolver) *listFile {
	l := &listFile{path: path}
	l.names.resolver = r
	l.status.init(Status{Source: path, Kind: KindFile, State: StateConnecting})
	return l
}

// Status is how the file does.
func (l *listFile) Status() []Status { return []Status{l.status.get()} }

// Run looks at the file, and at those that it names, every few seconds: each may be replaced by renaming, be
// behind a link, or not be there yet.
func (l *listFile) Run(ctx context.Context, out func([]roster.Said)) error {
	var before [sha256.Size]byte
	var good, told []roster.Said // of the last good file, and as they were reported
	read, reported := false, false
	for first := true; ; first = false {
		fresh := false
		data, err := readBounded(l.path, mostListBytes)
		sum := sha256.Sum256(data)
		if err != nil || first || sum != before {
			said, perr := []roster.Said(nil), err
			if err == nil {
				before = sum
				said, perr = roster.ReadList(l.path, data)
			} else {
				before = [sha256.Size]byte{} // what comes back is read again
			}
			if perr == nil {
				good, read, reported, fresh = said, true, false, true
			} else {
				l.status.set(StateBroken, fault.From(perr))
			}
		}
		l.pairs.read(good)
		tell := func() {
			now := l.names.add(l.pairs.add(good))
			if read && !(reported && reflect.DeepEqual(told, now)) {
				told, reported = now, true
				out(now)
			}
		}
		if fresh { // before its members are told: whoever sees them finds that a source reports them
			l.status.set(StateAttending, nil)
			l.status.contact()
		}
		tell() // before names are resolved, which may take a while
		if fresh {
			l.settled(len(good)) // with what it says already told: who awaits that looks then
		}
		l.names.resolve(ctx, good, time.Now())
		tell()
		l.status.warn(problems(append(l.pairs.problems(good), l.names.problems(good)...)))
		if !run.Wait(ctx, lookInterval) {
			return nil
		}
	}
}

// problems are what a file names and cannot be used, as one text.
func problems(all []string) string {
	if more := len(all) - listProblems; more > 0 {
		all = append(all[:listProblems], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

func (l *listFile) settled(n int) {
	l.status.mu.Lock()
	defer l.status.mu.Unlock()
	l.status.s.Members, l.status.s.Settled = n, true
}

func readBounded(path string, most int) ([]byte, error) {
	data, err := private.ReadPublic(path, most)
	if err == nil {
		return data, nil
	}
	return nil, fault.Newf(fault.CodeConfig, "the file of members %s cannot be read", path).Because(err).
		Hint("correct sources.file, or the file's rights")
}

// mailbox holds what a source stated last.
type mailbox struct {
	source Source

	mu   sync.Mutex
	said []roster.Said
}

// mailboxes are those of a file of members, if there is one, and of further sources.
func mailboxes(list *listFile, sources []Source) (out []*mailbox) {
	if list != nil {
		out = append(out, &mailbox{source: list})
	}
	for _, s := range sources {
		out = append(out, &mailbox{source: s})
	}
	return out
}

func (b *mailbox) put(said []roster.Said) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = said
}

func (b *mailbox) get() []roster.Said {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}
