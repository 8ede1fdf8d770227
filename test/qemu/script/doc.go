// SPDX-License-Identifier: Apache-2.0

// Package script is what a guest of package qemu is told to do, and what it says of it on its
// console, to values and back. It does not run anything: the guest's init does.
package script
