// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"net/netip"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

// TestWireGuardIsKept over a restart, and goes with its cluster.
func TestWireGuardIsKept(t *testing.T) {
	dir, now := t.TempDir(), noonOf()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c1, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	hidden := wireguard.Secret{Value: secret.Hide(&[32]byte{7})}
	want := wireguard.Cluster{Name: "c1", Mode: wireguard.On, Address: netip.MustParseAddr("192.168.128.16"),
		PublicKey: member.Key{1}, PrivateKey: hidden, Secret: hidden}
	change := func(k wireguard.Cluster, keep bool) {
		t.Helper()
		if _, err := s.ChangeWireGuard(c1, keep, now, func([]wireguard.Cluster) (wireguard.Cluster, error) { return k, nil }); err != nil {
			t.Fatal(err)
		}
	}
	wantKept := func(clusters, entries int) {
		t.Helper()
		all, err1 := s.Clusters()
		kept, err2 := s.WireGuard()
		if err := errors.Join(err1, err2); err != nil || len(all) != clusters || len(kept) != entries || entries > 0 && !kept[0].Same(want) {
			t.Errorf("%v, %+v, %v", all, kept, err)
		}
	}
	change(wireguard.Cluster{Name: "c1", Mode: wireguard.Inherit}, false) // a question
	wantKept(0, 0)
	change(want, false)
	wantKept(1, 1)
	refused := errors.New("refused")
	if _, err := s.ChangeWireGuard(c1, false, now, func(all []wireguard.Cluster) (wireguard.Cluster, error) {
		return wireguard.Cluster{}, refused
	}); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantKept(1, 1)
	if _, err := s.RemoveCluster(c1, now); err != nil {
		t.Fatal(err)
	}
	wantKept(0, 0)
}

// TestAStateWithoutWireGuard is of an earlier release.
func TestAStateWithoutWireGuard(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketWireGuard)) })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all, err := s.WireGuard(); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { return put(tx, bucketWireGuard, "c1", map[string]string{"cluster": "c1"}) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WireGuard(); !fault.Has(err, fault.CodeStateCorrupt) {
		t.Errorf("an entry without a mode: %v", err)
	}
}
