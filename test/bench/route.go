// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// The ways into a cluster, as the test of routed mode calls them.
const (
	wayConnect = "CONNECT"
	wayRouted  = "routed"
	wayOpenVPN = "OpenVPN"
)

func ways() []string { return []string{wayConnect, wayRouted, wayOpenVPN} }

// routeTest is the package whose TestRouteRate measures, in a world of its own.
const routeTest = "github.com/tombolo-io/tombolo/test/lab/product"

// routed measures routed mode. Its samples are taken by another program, all at once.
func routed() measurement {
	return measurement{
		name: "route", about: "one connection into a cluster behind NAT, by a CONNECT, by tombolo route and by OpenVPN; " +
			"idle: 2,000 of them",
		transports: ways(), family: familyWays, variants: []string{down, up, "idle"}, main: rate, against: wayConnect,
		rounds: 3, unless: func(*bench) error { return noRoute() }, whole: measureRoute,
	}
}

// noRoute says why routed mode cannot be measured here, or nil.
func noRoute() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if err := lab.Check(); err != nil {
		return err
	}
	for _, program := range []string{"openvpn", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	_, err := routeFolder(context.Background())
	return err
}

// routeFolder is where the test's sources are.
func routeFolder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-tags", "lab", "-f", "{{.Dir}}", routeTest).Output()
	if err != nil {
		return "", fmt.Errorf("this is not a checkout of tombolo: go list %s: %w", routeTest, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// measureRoute runs the test that make bench-route runs, with fewer bytes, and reads its samples.
func measureRoute(ctx context.Context, b *bench, rounds int) ([]record, error) {
	folder, err := routeFolder(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := b.lab.Dir()
	if err != nil {
		return nil, err
	}
	program, samples := filepath.Join(dir, "route.test"), filepath.Join(dir, "route.jsonl")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-tags", "lab", "-o", program, routeTest)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	test := exec.CommandContext(ctx, program, "-test.run", "^TestRouteRate$", "-test.v")
	test.Dir = folder
	test.Env = append(os.Environ(), fmt.Sprintf("TOMBOLO_LAB_ROUNDS=%d", rounds), "TOMBOLO_LAB_MIB=128",
		"TOMBOLO_LAB_SAMPLES="+samples)
	test.Cancel = func() error { return test.Process.Signal(syscall.SIGTERM) } // it takes its world away
	test.WaitDelay = time.Minute
	if out, err := test.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("TestRouteRate: %w\n%s", err, out)
	}
	f, err := os.Open(samples)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRoute(f)
}

// readRoute reads samples as the test writes them, a line each.
func readRoute(from io.Reader) (out []record, err error) {
	d := json.NewDecoder(from)
	for {
		var r record
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("the samples of routed mode: %w", err)
		}
		r.Measurement = "route"
		out = append(out, r)
	}
}
