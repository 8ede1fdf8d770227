// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main is the life of a program of this name: one of its processes, as its
// command line says, or the driver.
func Main(name string, live func(role string) error, drive func(ctx context.Context, args []string) (code int, err error)) {
	if len(os.Args) == 3 && os.Args[1] == Flag {
		if err := live(os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	// A signal ends the context, and everything is put away in order; a second
	// one ends us at once, and the processes with us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	code, err := drive(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
	}
	os.Exit(code)
}
