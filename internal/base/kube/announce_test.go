// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestAnnotations are read where nodes may be listed, beside the objects.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.MayListNodes(true)
	s.Put(kubetest.Nodes, "talos", `{"metadata":{"annotations":{"`+roster.AnnotationKey+`":"`+kubetest.Facts(4).Key.String()+`","`+
		roster.AnnotationEndpoints+`":"192.0.2.4:51820,[2001:db8::4]:51820"}}}`)
	s.Put(kubetest.Nodes, "plain", `{"metadata":{"annotations":{"a":"b"}}}`)
	s.Put(kubetest.Nodes, "wrong", `{"metadata":{"annotations":{"`+roster.AnnotationRanges+`":"everything"}}}`)
	s.Put(kubetest.Members, "n000", object(1, 60))
	r := kubetest.Start(t, s.Client(t, "n000"), kube.Options{NodeAnnotations: true, Name: "c1"})
	runtest.Eventually(t, "both", func() bool {
		_, talos := r.Find("c1-annotations", "talos")
		_, member := r.Find("c1-members", "n000")
		return talos && member
	})
	if talos, _ := r.Find("c1-annotations", "talos"); len(talos.Facts.Endpoints) != 2 || talos.Facts.Key != kubetest.Facts(4).Key {
		t.Errorf("%+v", talos)
	}
	if p := r.Part("c1-annotations"); len(r.Said()) != 2 || p.Bad != 1 || p.Objects != 3 {
		t.Errorf("%d said; %+v", len(r.Said()), p)
	}
	s.Delete(kubetest.Nodes, "talos")
	runtest.Eventually(t, "the end of talos", func() bool { return len(r.Said()) == 1 })
}

// TestOwnAnnotations: those that changed are written, no others, and those that are void are removed.
func TestOwnAnnotations(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(kubetest.Nodes, "n000", `{"metadata":{"uid":"u","annotations":{"other":"kept","`+roster.AnnotationExcluded+`":"10.0.0.0/8"}}}`)
	changed := make(chan struct{})
	r := kubetest.Start(t, s.Client(t, "n000"), kube.Options{Node: "n000", WriteAnnotations: true, Changed: changed,
		Self: func() member.Facts { return kubetest.Facts(1) }})
	written := func() bool { return !r.Part("announcement").Contact.IsZero() }
	runtest.Eventually(t, "the announcement", written)
	have := s.Object(kubetest.Nodes, "n000")["metadata"].(map[string]any)["annotations"].(map[string]any)
	want := map[string]any{"other": "kept"}
	for k, v := range roster.WriteAnnotations(kubetest.Facts(1)) {
		if v != "" {
			want[k] = v
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("the Node has\n%v, not\n%v", have, want)
	}
	before := s.Requests("PATCH", kubetest.Members+"/n000")
	changed <- struct{}{}
	runtest.Eventually(t, "the next announcement", func() bool { return s.Requests("PATCH", kubetest.Members+"/n000") > before })
	if n := s.Requests("PATCH", kubetest.Nodes+"/n000"); n != 1 {
		t.Errorf("the Node was written %d times", n)
	}
}

// TestNoNode: without its Node a node writes nothing, says so, and writes once the Node is there.
func TestNoNode(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	r := kubetest.Start(t, s.Client(t, "n000"), kube.Options{Node: "n000", WriteAnnotations: true, Self: func() member.Facts { return kubetest.Facts(1) }})
	runtest.Eventually(t, "the failure", func() bool { return fault.Has(r.Part("announcement").Err, fault.CodeNotFound) })
	if s.Object(kubetest.Members, "n000") != nil || s.Object(kubetest.Nodes, "n000") != nil {
		t.Error("something was written")
	}
	s.AddNode(t, "n000")
	runtest.Eventually(t, "the object", func() bool { return r.Knows("n000", 1) })
	owners := s.Object(kubetest.Members, "n000")["metadata"].(map[string]any)["ownerReferences"]
	if want := "[map[apiVersion:v1 kind:Node name:n000 uid:uid-n000]]"; fmt.Sprint(owners) != want {
		t.Errorf("owned by %v", owners)
	}
}

// TestTooMuchToSay: a part of the ranges would be a lie; a part of the endpoints is enough to be reached.
func TestTooMuchToSay(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.AddNode(t, "n000")
	c := s.Client(t, "n000")
	f := kubetest.Facts(1)
	for i := range limit.DiscoveryFacts + 1 {
		f.Ranges = append(f.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	if err := c.PutMember(t.Context(), "n000", "u", f, time.Minute); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("258 ranges: %v", err)
	}
	f = kubetest.Facts(1)
	f.Addresses = append(f.Addresses, netip.MustParseAddr("127.0.0.1"))
	if err := c.PutMember(t.Context(), "n000", "u", f, time.Minute); !fault.Has(err, fault.CodeAnnotation) {
		t.Errorf("what readers refuse: %v", err)
	}
	if s.Object(kubetest.Members, "n000") != nil {
		t.Error("half was written")
	}
	f = kubetest.Facts(1)
	for i := range 80 {
		f.Endpoints = append(f.Endpoints, member.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 9}), uint16(i+1))})
	}
	if err := c.PutMember(t.Context(), "n000", "u", f, time.Minute); err != nil {
		t.Error(err)
	}
	if n := len(s.Object(kubetest.Members, "n000")["spec"].(map[string]any)["endpoints"].([]any)); n != limit.DiscoveryEndpoints {
		t.Errorf("%d endpoints", n)
	}
}

// TestBurst: changes that come in a burst are one write or two, of the last of them.
func TestBurst(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.AddNode(t, "n000")
	changed := make(chan struct{}, 1)
	var n atomic.Uint32
	r := kubetest.Start(t, s.Client(t, "n000"), kube.Options{Node: "n000", Changed: changed,
		Self: func() member.Facts { return kubetest.Facts(byte(n.Load())) }})
	for range 50 {
		n.Add(1)
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	runtest.Eventually(t, "the last", func() bool { return r.Knows("n000", 50) })
	if n := s.Requests("PATCH", kubetest.Members+"/n000"); n > 4 {
		t.Errorf("%d writes", n)
	}
}
