// SPDX-License-Identifier: Apache-2.0

// Package qemu runs tests in a kernel of their own, for what the kernel of a test machine need
// not have: WireGuard, IPsec. The kernel is that of Debian's cloud images, unpacked from its
// package and not installed; the machine is QEMU's without virtualisation, which runs anywhere
// and at the speed of 20 years ago. It does not know what the tests are about.
//
//	g := qemu.Guest{Steps: []qemu.Step{
//		{Modules: []string{"veth", "tun"}, Package: "./test/lab/mesh", Tags: "lab,guest", Test: "^TestGuest"},
//	}}
//	report, err := g.Run(ctx) // report.Steps[0].Tests
//
// The initramfs has an init of ours (package init below), the modules that steps name and those
// that these need, test programs and the program tombolo, and nothing else: no shell, no ip, no
// nft. A step's modules are loaded when it is its turn, so an earlier step sees a kernel without
// them. Spare ones are loaded when the kernel asks for them, as modprobe would do it; who writes
// nothing to /proc/sys/kernel/modprobe has a kernel that finds none. The tests of a step are those of any package: what is built is static,
// and its `TOMBOLO_LAB_PROGRAM` is tombolo. The guest has no network beside the namespaces that
// tests make, no disk and no clock but its own.
//
// Nothing is left: the initramfs is a file of a folder that goes, and QEMU dies with us.
package qemu
