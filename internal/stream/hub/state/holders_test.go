// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func noonOf() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// joiner joins nodes or agents with a token.
type joiner struct {
	t       *testing.T
	store   *Store
	cluster id.Cluster
	agent   bool
	token   trust.Token
	secrets map[string]string // by id of the token
}

func newJoiner(t *testing.T) *joiner {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	j := &joiner{t: t, store: s, cluster: c, secrets: map[string]string{}}
	j.use(noonOf())
	return j
}

// use makes a token for nodes that is used from now on.
func (j *joiner) use(now time.Time) {
	j.t.Helper()
	token, secret := trust.NewToken(j.cluster, nodeKept*3, 100, now)
	token.Nodes = !j.agent
	if err := j.store.PutToken(token, now); err != nil {
		j.t.Fatal(err)
	}
	j.token, j.secrets[token.ID] = token, secret
}

// agents joins agents from now on.
func (j *joiner) agents() {
	j.agent = true
	j.use(noonOf())
}

// join asks for a name, with a certificate of a day.
func (j *joiner) join(name, key string, now time.Time) (identity string, err error) {
	j.t.Helper()
	n, err := id.ParseNode(name)
	if err != nil {
		j.t.Fatal(err)
	}
	_, _, err = j.store.UseToken(Use{
		TokenID: j.token.ID, Secret: j.secrets[j.token.ID], KeyHash: key, Node: !j.agent, Name: n, TrustDomain: "example.org",
		Issue: func(who string) (Holder, error) {
			identity = who
			return Holder{Serial: name + key, Issued: now.Truncate(time.Second), Expires: now.Add(24 * time.Hour)}, nil
		},
	}, now)
	return identity, err
}

func (j *joiner) node(identity string) Holder {
	j.t.Helper()
	rec, err := j.store.Holder(identity)
	if err != nil {
		j.t.Fatal(err)
	}
	return rec
}

func wantFault(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Has(err, code) || fault.From(err).Next == "" {
		t.Errorf("%v, want %s with a next step", err, code)
	}
}

func TestANameWhoseCertificateLives(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	who, err := j.join("n1", "one", now)
	if err != nil || who != "spiffe://example.org/cluster/c1/node/n1" {
		t.Fatal(who, err)
	}
	_, err = j.join("n1", "two", now.Add(24*time.Hour-1))
	wantFault(t, err, fault.CodeNodeTaken)
	if rec := j.node(who); rec.KeyHash != "one" || rec.Refuses(now) {
		t.Errorf("%+v", rec)
	}
	if tokens, err := j.store.Tokens(); err != nil || len(tokens[0].Claims) != 1 {
		t.Errorf("a refusal used the token: %+v, %v", tokens, err)
	}
	if _, err := j.join("n1", "one", now.Add(time.Hour)); err != nil {
		t.Errorf("the same key: %v", err)
	}
}

// TestANameThatWasGivenUp: nothing of the earlier holder counts any more.
func TestANameThatWasGivenUp(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	who, err := j.join("n1", "one", now)
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(24 * time.Hour)
	if _, err := j.join("n1", "two", later); err != nil {
		t.Fatalf("after its end: %v", err)
	}
	if rec := j.node(who); rec.KeyHash != "two" || !rec.Refuses(now) || rec.Refuses(later) {
		t.Errorf("%+v", rec)
	}
	wantFault(t, j.store.RenewHolder(Holder{Identity: who, KeyHash: "three", Issued: later.Add(time.Hour)}, now), fault.CodeCertRevoked)
	if err := j.store.RenewHolder(Holder{Identity: who, KeyHash: "four", Serial: "x", Issued: later.Add(time.Hour), Expires: later.Add(25 * time.Hour)}, later); err != nil {
		t.Error(err)
	}
	if rec := j.node(who); rec.KeyHash != "four" || !rec.Refuses(now) || rec.Refuses(later) {
		t.Errorf("a renewal forgets: %+v", rec)
	}
}

func TestANameThatWasRevoked(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	who, err := j.join("n1", "one", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := j.store.HolderBySerial("none"); found || err != nil {
		t.Errorf("another serial number: %v", err)
	}
	if _, found, err := j.store.RevokeHolder(identityOf(t, "spiffe://example.org/cluster/c1/node/n2"), false, now); found || err != nil {
		t.Errorf("another name: %v", err)
	}
	at := now.Add(time.Hour + 300*time.Millisecond)
	rec, found, err := j.store.RevokeHolder(identityOf(t, who), false, at)
	if !found || err != nil || !rec.Revoked.Equal(at) || rec.Token != j.token.ID || !rec.Refuses(now) || !rec.Refuses(now.Add(time.Hour)) {
		t.Fatalf("%+v, %v", rec, err)
	}
	wantFault(t, j.store.RenewHolder(Holder{Identity: who, KeyHash: "two"}, now), fault.CodeCertRevoked)
	j.use(at.Add(time.Millisecond))
	for _, key := range []string{"one", "two"} {
		_, err = j.join("n1", key, at.Add(600*time.Millisecond)) // within the second
		wantFault(t, err, fault.CodeNodeTaken)
	}
	if _, err := j.join("n1", "two", at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if rec := j.node(who); !rec.Revoked.IsZero() || !rec.Refuses(now) || rec.KeyHash != "two" || rec.Token != j.token.ID {
		t.Errorf("%+v", rec)
	}
	if err := j.store.RenewHolder(Holder{Identity: who, KeyHash: "three"}, at.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if rec := j.node(who); rec.Token != j.token.ID || rec.Void.IsZero() {
		t.Errorf("a renewal forgets: %+v", rec)
	}
}

// TestAUsedTokenDoesNotUndoARevocation: neither for the key that used it nor for another
// one, for nodes and agents, after a restart too. Other names it gives still.
func TestAUsedTokenDoesNotUndoARevocation(t *testing.T) {
	for _, role := range []id.Role{id.RoleNode, id.RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			j, now := newJoiner(t), noonOf()
			if role == id.RoleAgent {
				j.agents()
			}
			who, err := j.join("n1", "one", now)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := j.join("n1", "one", now); err != nil || again != who {
				t.Fatalf("before: %v, %v", again, err)
			}
			older := j.token
			j.use(now.Add(time.Minute)) // another token from before the revocation
			if _, found, err := j.store.RevokeHolder(identityOf(t, who), false, now.Add(30*time.Second)); !found || err != nil {
				t.Fatalf("%v, %v", found, err) // the clock was set back
			}
			other := j.token
			for _, token := range []trust.Token{older, other} {
				for _, key := range []string{"one", "two"} {
					if role == id.RoleAgent && (key == "two" || token.ID == other.ID) {
						continue // it gets a name of its own
					}
					j.token = token
					_, err := j.join("n1", key, now.Add(time.Hour))
					wantFault(t, err, fault.CodeCertRevoked)
				}
			}
			if _, err := j.join("n2", "two", now.Add(time.Hour)); err != nil {
				t.Errorf("another name: %v", err)
			}
		})
	}
}

// TestARevocationOfAnEarlierReleaseVoidsTokens: format 1 kept the time of it and no more.
func TestARevocationOfAnEarlierReleaseVoidsTokens(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	who, err := j.join("n1", "one", now)
	if err != nil {
		t.Fatal(err)
	}
	rec := j.node(who)
	rec.Token, rec.Revoked, rec.Before = "", now.Add(time.Hour), now.Add(time.Hour)
	err = j.store.db.Update(func(tx *bbolt.Tx) error { return put(tx, bucketNodes, who, rec) })
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"one", "two"} {
		_, err = j.join("n1", key, now.Add(2*time.Hour))
		wantFault(t, err, fault.CodeCertRevoked)
	}
	j.use(now.Add(2 * time.Hour))
	if _, err := j.join("n1", "one", now.Add(3*time.Hour)); err != nil {
		t.Errorf("with a new token: %v", err)
	}
}

func identityOf(t *testing.T, uri string) id.Identity {
	t.Helper()
	who, err := id.ParseURI(uri)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// TestAClockThatJumpsBack: what was issued before a revocation by a clock that was
// ahead is revoked, too.
func TestAClockThatJumpsBack(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	ahead := now.Add(10 * time.Hour)
	if _, err := j.join("n1", "one", ahead); err != nil {
		t.Fatal(err)
	}
	who := identityOf(t, "spiffe://example.org/cluster/c1/node/n1")
	rec, _, err := j.store.RevokeHolder(who, false, now)
	if err != nil || !rec.Refuses(ahead) {
		t.Errorf("%+v, %v", rec, err)
	}
	j.use(now.Add(time.Minute))
	_, err = j.join("n1", "two", now.Add(time.Hour))
	wantFault(t, err, fault.CodeNodeTaken)
}

func TestOneOfManyGetsAName(t *testing.T) {
	j := newJoiner(t)
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := j.join("n1", fmt.Sprint("key-", i), noonOf()); err == nil {
				won.Add(1)
			} else if !fault.Has(err, fault.CodeNodeTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d nodes have the name", n)
	}
}

func TestNamesAreForgotten(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	for i, at := range []time.Duration{0, 48 * time.Hour} {
		if _, err := j.join(fmt.Sprint("n", i), fmt.Sprint("key-", i), now.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.store.PutToken(j.token, now.Add(nodeKept+25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	nodes, err := j.store.Holders()
	if err != nil || len(nodes) != 1 || nodes[0].Identity != "spiffe://example.org/cluster/c1/node/n1" {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// TestAStateOfAnEarlierRelease has no nodes, and gets a place for them.
func TestAStateOfAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte(bucketNodes)); err != nil {
			return err
		}
		return put(tx, bucketMeta, keyFormat, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if nodes, err := s.Holders(); err != nil || len(nodes) != 0 {
			t.Errorf("%v, %v", nodes, err)
		}
		var format int
		err = s.db.View(func(tx *bbolt.Tx) (err error) {
			_, err = get(tx, bucketMeta, keyFormat, &format)
			return err
		})
		if err != nil || format != formatVersion {
			t.Errorf("format %d, %v", format, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		t.Error(err)
	}
}
