// SPDX-License-Identifier: Apache-2.0

// Command frontend dials as kube-apiserver does: by its own egressselector package, which has version v0.31.2 of the
// konnectivity client. It does not know Tombolo.
//
//	frontend CONFIG ECHO REFUSED    CONFIG is an EgressSelectorConfiguration
//
// It ends with 0 if everything that it sends to ECHO, on several connections at once, comes back, and a dial to REFUSED
// fails in time.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/egressselector"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

const (
	parallel = 4
	size     = 300_000 // more than a packet
	patience = 20 * time.Second
)

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("a configuration and two addresses are expected")
	}
	config, err := egressselector.ReadEgressSelectorConfiguration(args[0])
	if err != nil {
		return err
	}
	if all := egressselector.ValidateEgressSelectorConfiguration(config); len(all) > 0 {
		return all.ToAggregate()
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil {
		return err
	}
	dial, err := selector.Lookup(egressselector.Cluster.AsNetworkContext())
	if err != nil {
		return err
	}
	if dial == nil {
		return errors.New("the configuration has no egress for the cluster")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	errs := make([]error, parallel)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = echo(ctx, dial, args[1]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	conn, err := dial(ctx, "tcp", args[2])
	if err == nil {
		conn.Close()
		return errors.New("an address where nobody listens was reached")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the refusal came too late: %w", err)
	}
	fmt.Println("refused:", err)
	return nil
}

func echo(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), address string) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	sent := make([]byte, size)
	rand.Read(sent)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		written <- err
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !bytes.Equal(sent, got) {
		return errors.New("other bytes came back than were sent")
	}
	return <-written
}
