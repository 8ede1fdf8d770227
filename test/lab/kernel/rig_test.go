// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

// node is a machine with a kernel of its own.
type node struct {
	t      *testing.T
	host   *lab.Host
	kernel *kernel.Kernel
}

func newNode(t *testing.T, host *lab.Host) *node {
	t.Helper()
	n := &node{t: t, host: host}
	err := host.Do(func() (err error) {
		n.kernel, err = kernel.New(kernel.Names{Link: kerneltest.Link, Filter: "tombolo_mesh", Table: 180, Protocol: kernel.Protocol})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.kernel.Close() })
	return n
}

func alone(t *testing.T) *node {
	t.Helper()
	l := labtest.New(t, "kernel")
	h, err := l.Host("node")
	if err != nil {
		t.Fatal(err)
	}
	return newNode(t, h)
}

func (n *node) Observe() (s plan.State, err error) {
	err = n.host.Do(func() (err error) { s, err = n.kernel.Observe(); return err })
	return s, err
}

func (n *node) Apply(steps []plan.Step) error {
	return n.host.Do(func() error { return n.kernel.Apply(steps) })
}

func (n *node) Check(want plan.State) (faults []*fault.Fault) {
	err := n.host.Do(func() error { faults = n.kernel.Check(want); return nil })
	if err != nil {
		n.t.Error(err)
	}
	return faults
}

// Make makes a TUN link, without anybody who reads it.
func (n *node) Make(name string) error {
	return n.host.Do(func() error {
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TUN})
	})
}

func (n *node) Lose(name string) error {
	return n.host.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}
