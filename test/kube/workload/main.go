// SPDX-License-Identifier: Apache-2.0

// Command workload is what runs in the pods of the Kubernetes rig: one static program with the pause
// process, a writer of log lines, an HTTP echo, an admission webhook, a small aggregated API server and a small DNS.
// It is a test program; nothing of the product uses it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch verb {
	case "pause":
		err = pause()
	case "lines":
		err = lines()
	case "serve":
		err = serve()
	case "names":
		err = names(os.Args[2:])
	default:
		err = fmt.Errorf("unknown verb %q: want pause, lines, serve or names", verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// pause is process 1 of a pod sandbox, and of the rig's node: it reaps what is left to it until it is told
// to end.
func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return nil
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if pid <= 0 {
				break
			}
		}
	}
	return nil
}

// lines writes a numbered line ten times a second, so that a reader can tell a gap from a pause.
func lines() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		fmt.Printf("line %d\n", n)
		select {
		case <-signals:
			return nil
		case <-tick.C:
		}
	}
}
