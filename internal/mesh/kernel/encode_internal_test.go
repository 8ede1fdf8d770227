// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

func TestLinesThatCannotBe(t *testing.T) {
	for _, text := range []string{
		"odd thing", "do nothing", "mark 0x20", "mark/0x60 many", "mark/0x60 0x80", "state old", "status snat", "family 5",
		"saddr4 10.0.0.1/8", "saddr4 fd00::/8", "daddr6 10.0.0.0/8", "saddr4 @a daddr6 @b", "dport 80", "proto 300", "proto 6 dport 90-80",
		"proto 6 dport !80", "proto 17 mss 1200", "mss 1200", "tcp syn mss much", "family 4 saddr6 @a",
		"about-saddr4 @a", "about-saddr4 fd01::/64", "proto 6 move-about-saddr 10.0.0.0/8", "about-saddr4 10.0.0.0/8 move-about-saddr fd02::/64",
		"saddr6 fd01::/64 move-saddr 10.0.0.0/8", "move-saddr 10.0.0.0/8",
		"in " + strings.Repeat("x", planLine),
	} {
		line, err := plan.ParseLine(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if exprs, err := encode(line); err == nil {
			t.Errorf("%q is %v", text, exprs)
		}
	}
}

func TestLinesThatDifferInWhatTheyDo(t *testing.T) {
	texts := []string{
		"do accept", "do drop", "mark/0x60 0x20 do drop", "mark/0x60 !0x20 do drop", "mark/0x60 0x40 do drop", "mark/0x40 0x40 do drop",
		"ctmark/0x60 0x40 do drop", "set-mark/0x60 0x40", "set-ctmark/0x60 0x40", "in a do drop", "out a do drop", "saddr4 @a do drop",
		"saddr4 !@a do drop", "daddr4 @a do drop", "saddr4 @b do drop", "saddr6 @a do drop", "state new do drop", "state !new do drop",
		"state new,related do drop", "status dnat do drop", "status !dnat do drop", "tcp syn mss 1300", "tcp syn mss 1301", "jump a", "jump b",
		"proto 6 do drop", "proto 17 do drop", "proto 6 dport 80 do drop", "proto 6 dport 80-81 do drop", "from local do drop",
		"from !local do drop", "do masquerade", "count packets do drop", "saddr4 @a do keep", "saddr6 @a do keep",
		"saddr4 10.0.0.0/8 move-saddr 11.0.0.0/8", "saddr4 10.0.0.0/8 move-daddr 11.0.0.0/8", "saddr6 fd01::/64 move-saddr fd02::/64",
		"about-saddr4 10.0.0.0/8 move-about-saddr 11.0.0.0/8", "about-daddr4 10.0.0.0/8 move-about-daddr 11.0.0.0/8",
		"about-saddr6 fd01::/64 move-about-saddr fd02::/64", "about-daddr6 fd01::/64 move-about-daddr fd02::/64",
	}
	var all [][]expr.Any
	for _, text := range texts {
		line, err := plan.ParseLine(text)
		if err != nil {
			t.Fatal(err)
		}
		exprs, err := encode(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, exprs)
	}
	for i := range all {
		for k := range all {
			if same(all[i], all[k]) != (i == k) {
				t.Errorf("%q and %q: the same %v", texts[i], texts[k], i != k)
			}
		}
	}
	counted := []expr.Any{&expr.Counter{Packets: 7, Bytes: 700}, &expr.Verdict{Kind: expr.VerdictDrop}}
	if want, _ := encode(plan.Line{plan.Count(), plan.Do("drop")}); !same(want, counted) {
		t.Error("a rule that has counted is not its own")
	}
}

func TestElementsOfASet(t *testing.T) {
	r := func(s string) plan.Range { return plan.RangeOf(netip.MustParsePrefix(s)) }
	for _, ranges := range [][]plan.Range{
		nil, {r("10.0.0.0/8")}, {r("10.0.0.0/24"), r("10.0.1.0/24")}, {r("0.0.0.0/0")}, {r("0.0.0.0/8"), r("240.0.0.0/4")},
		{r("fd00::/8")}, {r("ff00::/8")}, {r("::/0")},
	} {
		f := plan.IPv4
		if len(ranges) > 0 {
			f = plan.FamilyOf(ranges[0].From)
		}
		if got := rangesOf(edges(ranges), f); fmt.Sprint(got) != fmt.Sprint(ranges) {
			t.Errorf("%v read as %v", ranges, got)
		}
	}
	nft := []nftables.SetElement{{Key: []byte{0, 0, 0, 0}, IntervalEnd: true}, {Key: []byte{10, 0, 0, 0}}, {Key: []byte{10, 0, 0, 1}, IntervalEnd: true}}
	if got := rangesOf(nft, plan.IPv4); fmt.Sprint(got) != "[10.0.0.0]" { // nft itself puts an end at 0
		t.Errorf("as nft writes it: %v", got)
	}
}

func TestFaults(t *testing.T) {
	what := plan.Step{Verb: plan.Add, On: plan.TableName("t")}
	for _, tc := range []struct {
		err  error
		want fault.Code
		next string
	}{
		{(Names{}).failed(what, unix.EEXIST), fault.CodeClash, "choose another"},
		{(Names{}).failed(what, netlink.LinkNotFoundError{}), fault.CodeNotFound, ""},
		{(Names{}).failed(what, fmt.Errorf("x: %w", unix.EPERM)), fault.CodeUnsupported, "CAP_NET_ADMIN"},
		{(Names{}).failed(what, &fs.PathError{Err: unix.EROFS}), fault.CodeUnsupported, "/proc/sys/net"},
		{(Names{}).failed(what, unix.EINVAL), fault.CodeKernel, "nft monitor"},
		{reading("x", unix.EPROTONOSUPPORT), fault.CodeUnsupported, "nf_tables"},
		{reading("x", unix.EINVAL), fault.CodeKernel, "tried again"},
		{(Names{}).tableFault("x", fmt.Errorf("y: %w", errors.Join(unix.ENOENT, unix.EOPNOTSUPP))), fault.CodeUnsupported, "nf_tables"},
		{(Names{}).tableFault("x", unix.EEXIST), fault.CodeClash, "nft list table"},
		{(Names{}).tableFault("x", unix.ENOBUFS), fault.CodeLimit, "smaller parts"},
		{(Names{}).tableFault("x", fmt.Errorf("y: %w", unix.EMSGSIZE)), fault.CodeLimit, "wmem_max"},
		{(Names{}).tableFault("x", unix.EINVAL), fault.CodeKernel, "dmesg"},
	} {
		if f := fault.From(tc.err); f.Code != tc.want || !strings.Contains(f.Next, tc.next) {
			t.Errorf("%s, want %s with %q", f.Explain(), tc.want, tc.next)
		}
	}
	if err := (Names{}).failed(what, nil); err != nil {
		t.Errorf("without an error: %v", err)
	}
	nested := fmt.Errorf("z: %w", errors.Join(unix.ENOENT, fmt.Errorf("y: %w", errors.Join(unix.EINVAL, unix.EPERM))))
	if got := refusals(nested); len(got) != 3 || len(refusals(nil)) != 0 || len(refusals(unix.ENOENT)) != 1 {
		t.Errorf("refusals %v", got)
	}
}

func TestSmallerTransactionsWhereThereIsNoRoom(t *testing.T) {
	k := &Kernel{nft: &nftables.Conn{}, most: kernelRanges}
	k.again(unix.EINVAL)
	if k.most != kernelRanges {
		t.Errorf("after another error: %d", k.most)
	}
	for range 20 {
		k.again(fmt.Errorf("x: %w", unix.ENOBUFS))
	}
	if k.most != 1 {
		t.Errorf("after many: %d", k.most)
	}
	k.nft.CloseLasting()
}

func TestWhatChangesMeanwhileIsReadAgain(t *testing.T) {
	for _, tc := range []struct {
		interrupted, reads int
		ok                 bool
	}{{0, 1, true}, {3, 4, true}, {100, kernelReads, false}} {
		reads := 0
		err := whole(func() error {
			if reads++; reads <= tc.interrupted {
				return reading("routes", fmt.Errorf("x: %w", netlink.ErrDumpInterrupted))
			}
			return nil
		})
		if reads != tc.reads || (err == nil) != tc.ok {
			t.Errorf("%d times interrupted: %d reads, %v", tc.interrupted, reads, err)
		}
	}
	if err := whole(func() error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("another error: %v", err)
	}
}

// Each message of a transaction is refused by itself; the fault says it once, and how often.
func TestAFaultSaysOnceWhatWasRefusedOften(t *testing.T) {
	var all []error
	for range 16 {
		all = append(all, fmt.Errorf("netlink receive: %w", unix.ENOENT))
	}
	f := fault.From((Names{}).tableFault("changing table inet t", errors.Join(all...)))
	if want := "mesh_kernel: changing table inet t: netlink receive: no such file or directory (16 times)"; f.Error() != want {
		t.Errorf("%q, want %q", f.Error(), want)
	}
	if !errors.Is(f, unix.ENOENT) {
		t.Error("its cause is lost")
	}
	all = append(all, unix.EBUSY, unix.EINVAL, unix.EAGAIN, unix.ENODATA, unix.ESRCH, unix.ESRCH)
	f = fault.From((Names{}).failed(plan.Step{Verb: plan.Add, On: plan.TableName("t")}, errors.Join(all...)))
	want := "mesh_kernel: add table inet t: netlink receive: no such file or directory (16 times); device or resource busy; invalid argument; resource temporarily unavailable; and 2 more"
	if f.Error() != want {
		t.Errorf("%q, want %q", f.Error(), want)
	}
}
