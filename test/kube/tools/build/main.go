// SPDX-License-Identifier: Apache-2.0

// Command build fills the cache with the Kubernetes programs of the given minor versions (1.35 when none is
// given), with etcd alone, with the oracle of test/pilot or with the reference of test/konnectivity, and prints where
// they are. It does nothing when the cache holds them.
//
//	go run ./test/kube/tools/build 1.34 1.35
//	go run ./test/kube/tools/build etcd
//	go run ./test/kube/tools/build pilot
//	go run ./test/kube/tools/build konnectivity
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, minors []string) error {
	if len(minors) == 0 {
		minors = []string{tools.Default}
	}
	repo, err := tools.Repo()
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, minor := range minors {
		ensure, what := tools.Ensure, "kubernetes "+minor
		if one := alone(minor); one != nil {
			ensure, what = func(ctx context.Context, repo, _ string, progress func(string)) (string, error) {
				return one(ctx, repo, progress)
			}, minor
		}
		dir, err := ensure(ctx, repo, minor, func(line string) {
			fmt.Fprintf(os.Stderr, "%6.1fs  %s: %s\n", time.Since(begin).Seconds(), what, line)
		})
		if err != nil {
			return err
		}
		fmt.Println(dir)
	}
	return nil
}

// alone are the programs that are built without the others.
func alone(name string) func(ctx context.Context, repo string, progress func(string)) (string, error) {
	switch name {
	case "etcd":
		return tools.EnsureEtcd
	case "pilot":
		return tools.EnsureOracle
	case "konnectivity":
		return tools.EnsureAllOfKonnectivity
	}
	return nil
}
