// SPDX-License-Identifier: Apache-2.0

// Command fetch fills the cache with the kernel of package qemu, and prints where it is. It does
// nothing when the cache holds one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tombolo-io/tombolo/test/qemu"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := qemu.Fetch(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
	fmt.Println(dir)
}
