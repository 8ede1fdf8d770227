// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
	"github.com/tombolo-io/tombolo/test/lab"
)

const (
	floodLines = 20_000
	floodWidth = 1000 // bytes of a line
	// stands is longer than the second that a tunnel waits for a connection whose queue is full.
	stands = 2 * time.Second
	// lost is how long exec and cp may stand still before Kubernetes itself loses the end of what they print, with direct
	// routing too: kube-apiserver pings the connection each 5 s, and what is left of it goes once two are not read.
	lost = 10 * time.Second
)

// flood is a script that prints 20 MB of numbered lines as fast as it can.
func flood() string {
	return fmt.Sprintf(`awk 'BEGIN{p="x"; while (length(p)<%d) p=p p; p=substr(p,1,%d); for(i=1;i<=%d;i++) printf "%%08d %%s\n", i, p}'`,
		floodWidth, floodWidth-10, floodLines)
}

// slow has people whose terminals stand still while a pod prints more than all queues hold, first by our own session,
// then by the reference's wire. Others use kubectl meanwhile. docs/reference/konnectivity.md says what they see.
func (k *konnectivity) slow(t *testing.T) {
	manifest := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: flood}, spec: {restartPolicy: Never, containers: "+
		"[{name: main, image: %q, imagePullPolicy: Never, command: [sh, -c, %q]}]}}", rig.Image, flood())
	if err := k.Apply(k.within(t, time.Minute), strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	k.kubectl(t, "exec", "shell", "--", "sh", "-c", flood()+" > /tmp/flood")
	k.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/flood", "--timeout=60s")
	reset := regexp.MustCompile(`msg="a connection was reset" agent=\S+ target=\S+:10250 reason="limit_reached: `)
	for _, wire := range []struct {
		args []string // of the server
		cut  int      // terminals
	}{{nil, 0}, {[]string{"--native=false"}, 2}} {
		if wire.args != nil {
			k.serve(t, rig.Tombolos, append(kamajiServer(t), wire.args...))
			k.agents(t, "2")
		}
		terminals := []*terminal{k.terminal(t, false, "logs", "flood"), k.terminal(t, false, "logs", "-f", "flood"),
			k.terminal(t, wire.cut > 0, "exec", "shell", "--", "cat", "/tmp/flood"),
			k.terminal(t, wire.cut > 0, "cp", "shell:/tmp/flood", "/dev/stdout")}
		begin := time.Now()
		for time.Since(begin) < stands {
			k.others(t)
		}
		runtest.Eventually(t, "those that are cut are in the server's log", func() bool {
			return len(reset.FindAllString(k.server.Tail(), -1)) == wire.cut
		})
		for _, x := range terminals {
			x.release()
		}
		for _, x := range terminals {
			x.ends(t, wire.args)
		}
	}
}

// others are commands of other people, each of which has a time of its own.
func (k *konnectivity) others(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"logs", "writer", "--tail=1"}, {"exec", "shell", "--", "echo", "hello"},
		{"get", "--raw", "/api/v1/nodes/node1/proxy/healthz"}} {
		if out, err := k.Kubectl(k.within(t, 20*time.Second), args...); err != nil {
			t.Errorf("%q beside terminals that stand still: %v: %s", args, err, out)
		}
	}
}

// terminal is what a kubectl prints to. It stands still until ends lets it continue.
type terminal struct {
	args    []string
	cut     bool // it will be
	begin   time.Time
	stood   time.Duration // since its begin, when it was released
	session *lab.Process
	prints  chan struct{} // closed when there is something to print
	once    sync.Once
	read    chan struct{} // closed when it is read
	text    bytes.Buffer
}

// terminal starts a kubectl, and waits until it prints.
func (k *konnectivity) terminal(t *testing.T, cut bool, args ...string) *terminal {
	t.Helper()
	x := &terminal{args: args, cut: cut, begin: time.Now(), prints: make(chan struct{}), read: make(chan struct{})}
	var err error
	if x.session, err = k.StartKubectl(k.ctx, nil, x, args...); err != nil { // other steps come before its end
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.release()
		x.session.Stop(0)
	})
	select {
	case <-x.prints:
	case <-x.session.Done():
		t.Fatalf("%q ended: %v", args, x.session.Wait())
	case <-time.After(time.Minute):
		t.Fatalf("%q prints nothing", args)
	}
	return x
}

// Write takes output; os/exec calls it from one goroutine.
func (x *terminal) Write(b []byte) (int, error) {
	x.once.Do(func() { close(x.prints) })
	<-x.read
	return x.text.Write(b)
}

func (x *terminal) release() {
	select {
	case <-x.read:
	default:
		x.stood = time.Since(x.begin)
		close(x.read)
	}
}

// ends wants all lines of one that was released, or the first of them where the connection was cut.
func (x *terminal) ends(t *testing.T, server []string) {
	t.Helper()
	select {
	case <-x.session.Done():
	case <-time.After(time.Minute):
		t.Errorf("%q with the server's %q does not end", x.args, server)
		x.session.Kill()
	}
	err := x.session.Wait()
	text := strings.Replace(x.text.String(), tarSays, "", 1) // somewhere in the middle
	n := 0
	for line := range strings.Lines(text) {
		if len(line) != floodWidth || !strings.HasPrefix(line, fmt.Sprintf("%08d x", n+1)) {
			break
		}
		n++
	}
	said := regexp.MustCompile(`^\d{0,8} ?x*`).ReplaceAllString(text[n*floodWidth:], "") // a line that was cut
	if x.args[0] != "logs" && x.stood >= lost && !x.cut {
		t.Logf("%q stood for %v, and has %d of %d lines: Kubernetes may lose the last ones", x.args, x.stood, n, floodLines)
		return
	}
	if err == nil == x.cut && x.args[0] != "exec" || n == 0 || n < floodLines != x.cut {
		t.Errorf("%q with the server's %q has %d of %d lines, and ends with %v: %.300s", x.args, server, n, floodLines, err, said)
	}
	if x.cut {
		t.Attr("figure", fmt.Sprintf("kubectl %s, not read for %v on the reference's wire: %d of %d lines, %v, says %q",
			strings.Join(x.args, " "), stands, n, floodLines, exit(err), said))
	}
}

// tarSays is what the cp of a path that is absolute says on its standard error.
const tarSays = "tar: removing leading '/' from member names\n"

// exit is how a program has ended.
func exit(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
