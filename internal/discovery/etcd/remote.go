// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// remote is what the store needs of etcd, so that its rules can be tried without
// one and in simulated time.
type remote interface {
	// Range reads keys in their order, at a revision (0: the present one).
	Range(ctx context.Context, from, to string, rev int64, most int64) (page, error)
	// Swap writes a key if its revision is what it was (0: there is none), on a
	// lease (0: on none). Without a value it takes the key away.
	Swap(ctx context.Context, key string, was int64, value []byte, lease int64) (swapped, error)
	Grant(ctx context.Context, seconds int64) (lease int64, err error)
	Renew(ctx context.Context, lease int64) error
	Revoke(ctx context.Context, lease int64) error
	// Left is how long a lease has, in whole seconds; below zero: it is over.
	Left(ctx context.Context, lease int64) (time.Duration, error)
	// Watch calls back with everything from a revision on, until it fails, ctx ends,
	// or take returns an error.
	Watch(ctx context.Context, from, to string, rev int64, take func(news) error) error
	// Progress asks the watches for their revision.
	Progress(ctx context.Context) error
	Close() error
}

// The errors that the store distinguishes.
var (
	errNoLease   = errors.New("the lease is over")
	errCompacted = errors.New("the changes since are forgotten")
)

// head is which etcd answers, and how far it is.
type head struct {
	cluster uint64
	rev     int64
}

// pair is a key with what stands there.
type pair struct {
	key   string
	value []byte
	rev   int64 // of the last write
	made  int64 // revision of the first
	lease int64
}

type page struct {
	head
	pairs []pair
	more  bool
}

// swapped is whether a write was done, and else what stands there (nil: nothing).
type swapped struct {
	head
	done bool
	is   *pair
}

// news is what a watch delivers: events, or a sign of life, after which all up to its
// revision was delivered.
type news struct {
	head
	events []event
	alive  bool
}

type event struct {
	pair
	gone bool
}

// real is an etcd by its client.
type real struct{ client *clientv3.Client }

func headOf(h *pb.ResponseHeader) head {
	if h == nil {
		return head{}
	}
	return head{cluster: h.ClusterId, rev: h.Revision}
}

func pairOf(kv *mvccpb.KeyValue) pair {
	return pair{key: string(kv.Key), value: kv.Value, rev: kv.ModRevision, made: kv.CreateRevision, lease: kv.Lease}
}

func (r real) Range(ctx context.Context, from, to string, rev int64, most int64) (page, error) {
	answer, err := r.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithRev(rev), clientv3.WithLimit(most))
	if err != nil {
		return page{}, told(err)
	}
	out := page{head: headOf(answer.Header), more: answer.More}
	for _, kv := range answer.Kvs {
		out.pairs = append(out.pairs, pairOf(kv))
	}
	return out, nil
}

func (r real) Swap(ctx context.Context, key string, was int64, value []byte, lease int64) (swapped, error) {
	do := clientv3.OpDelete(key)
	if value != nil {
		do = clientv3.OpPut(key, string(value), clientv3.WithLease(clientv3.LeaseID(lease)))
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", was)
	answer, err := r.client.Txn(ctx).If(unchanged).Then(do).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return swapped{}, told(err)
	}
	out := swapped{head: headOf(answer.Header), done: answer.Succeeded}
	if !out.done {
		for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
			is := pairOf(kv)
			out.is = &is
		}
	}
	return out, nil
}

func (r real) Grant(ctx context.Context, seconds int64) (int64, error) {
	answer, err := r.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return int64(answer.ID), nil
}

func (r real) Renew(ctx context.Context, lease int64) error {
	_, err := r.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	return told(err)
}

func (r real) Revoke(ctx context.Context, lease int64) error {
	_, err := r.client.Revoke(ctx, clientv3.LeaseID(lease))
	return told(err)
}

func (r real) Left(ctx context.Context, lease int64) (time.Duration, error) {
	answer, err := r.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, err
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

func (r real) Watch(ctx context.Context, from, to string, rev int64, take func(news) error) error {
	for answer := range r.client.Watch(clientv3.WithRequireLeader(ctx), from, clientv3.WithRange(to),
		clientv3.WithRev(rev)) {
		if err := answer.Err(); err != nil {
			return told(err)
		}
		if err := take(newsOf(answer)); err != nil {
			return err
		}
	}
	return errSilent
}

func newsOf(answer clientv3.WatchResponse) news {
	out := news{head: headOf(&answer.Header), alive: answer.IsProgressNotify()}
	for _, e := range answer.Events {
		out.events = append(out.events, event{pair: pairOf(e.Kv), gone: e.Type == mvccpb.DELETE})
	}
	return out
}

func (r real) Progress(ctx context.Context) error {
	return r.client.RequestProgress(clientv3.WithRequireLeader(ctx))
}

func (r real) Close() error { return r.client.Close() }

// told is an error as the store tells it apart.
func told(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return errNoLease
	case errors.Is(err, rpctypes.ErrCompacted):
		return errCompacted
	}
	return err
}
