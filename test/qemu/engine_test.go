// SPDX-License-Identifier: Apache-2.0

//go:build qemu

package qemu_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/qemu"
	"github.com/tombolo-io/tombolo/test/qemu/script"
)

// network are the modules of what labs and the mesh do in namespaces.
var network = []string{"veth", "tun", "bridge", "nf_tables", "nft_ct", "nft_nat", "nft_chain_nat", "nft_masq",
	"nft_fib_inet", "nft_numgen", "nf_conntrack_netlink", "sch_netem"}

// Modules of IPsec.
var (
	ofGCM     = []string{"gcm", "ghash-generic", "ctr"}
	ofChaCha  = []string{"chacha20poly1305", "chacha_generic", "poly1305_generic"}
	diverting = []string{"sch_ingress", "cls_flower", "act_mirred"}
)

// TestKernelEngine: what the mesh does with the kernel's own WireGuard, in a kernel that has it, and beside IPsec.
func TestKernelEngine(t *testing.T) {
	t.Parallel() // a guest waits half of its time
	tests := "^TestEngine(Relay|LinkedClusters|Sizes)?$"
	if os.Getenv("TOMBOLO_QEMU_RENEWAL") != "" { // make test-renewal: WireGuard renews its keys every two minutes
		tests = "^TestEngineRenews$"
	}
	run(t, qemu.Guest{Within: 8 * time.Minute, Spare: []string{"wireguard"}, Steps: []qemu.Step{
		{Modules: network, Package: "./test/lab/mesh", Tags: "lab,guest", Test: tests},
		{Package: "./test/lab/kernel", Tags: "lab", Test: "^TestTheKernelsWireGuardKeepsTheContract$"},
		{Modules: slices.Concat([]string{"wireguard", "xfrm_user", "xfrm_interface", "esp4", "esp6"}, ofGCM, []string{"seqiv",
			"drbg"}, ofChaCha, diverting), Package: "./test/lab/mesh", Tags: "lab,guest",
			Test: "^TestEngineSwitch$"},
	}})
}

// run has a guest do its steps. Every test in it is a part of t; one that is left out has failed,
// and so has a step without tests.
func run(t *testing.T, g qemu.Guest) {
	t.Helper()
	report, err := g.Run(context.Background())
	tests := 0
	for _, s := range report.Steps {
		for _, line := range s.Lines {
			if _, figure, ok := strings.Cut(line, " figure "); ok && strings.HasPrefix(line, "=== ATTR") {
				t.Attr("figure", figure)
			}
		}
		t.Logf("step %d ran %s with exit code %d", s.Step, g.Steps[s.Step].Test, s.Code)
		for _, test := range s.Tests {
			tests++
			t.Run(test.Name, func(t *testing.T) {
				if test.Outcome != script.Pass {
					t.Errorf("it has ended with %s in the guest", test.Outcome)
				}
			})
		}
		if s.Code != 0 || len(s.Tests) == 0 || t.Failed() {
			t.Errorf("step %d (%s) has ended with exit code %d and %d tests:\n%s", s.Step, g.Steps[s.Step].Test, s.Code,
				len(s.Tests), strings.Join(s.Lines, "\n"))
		}
	}
	if err != nil || !report.Ended || len(report.Steps) != len(g.Steps) {
		t.Errorf("the guest has done %d of %d steps; %s: %v\n%s", len(report.Steps), len(g.Steps), report.Broke, err,
			strings.Join(report.Stray, "\n"))
	}
}

// TestKernelIPsec: what the mesh does with the kernel's IPsec, in a kernel that has it, and what it says in one that does
// not.
func TestKernelIPsec(t *testing.T) {
	t.Parallel()
	in := func(test string, modules ...string) qemu.Step {
		return qemu.Step{Modules: modules, Package: "./test/lab/kernel", Tags: "lab,guest", Test: "^" + test + "$"}
	}
	ciphers := append(slices.Clone(ofChaCha), "authenc", "cbc", "echainiv") // these three are for what others have
	run(t, qemu.Guest{Within: 12 * time.Minute, Steps: []qemu.Step{
		in("TestWithoutIPsec", network...),
		in("TestWithoutLinks", "xfrm_user"),
		in("TestWithoutESP", "xfrm_interface"),
		in("TestWithoutSeqiv", append([]string{"esp4", "esp6"}, ofGCM...)...),
		in("TestWithoutDRBG", "seqiv"),
		in("TestWithoutChaCha", "drbg"),
		in("(TestWithoutDiverting|TestATrial(BesideOthers|WithoutItsLink)|TestLeavingIPsec|TestTheKernelsIPsec|"+
			"TestSequenceNumbersOfIPsec|TestAReplayOfIPsec|TestPacketSizesOfIPsec|TestWhoHasTheKeyDecryptsIPsec)", ciphers...),
		in("TestKeysOnThePortOfESP"),
		in("TestDiversionsThatAreGone", diverting...),
		{Package: "./test/lab/mesh", Tags: "lab,guest",
			Test: "^TestIPsec(Engine|Relay|WithoutUDP|LinkedClusters|Sizes)$"},
	}})
}
