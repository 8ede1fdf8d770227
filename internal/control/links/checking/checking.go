// SPDX-License-Identifier: Apache-2.0

// Package checking has all nodes of a cluster check how they reach linked clusters, by a command in the mesh's pod of
// each. It does not measure or judge, and changes nothing.
package checking

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/link/check"
)

const (
	// atOnce is how many nodes are asked at the same time.
	atOnce = 32
	// patient is how long one node may take.
	patient = 30 * time.Second
	// mostAnswer bounds the answer of a node in bytes: 256 peers with three findings each.
	mostAnswer = 1 << 20
	// program is where the image has it.
	program = "/usr/local/bin/tombolo"
)

// pods select those of 'tombolo mesh manifest'.
var pods = client.MatchingLabels{"app.kubernetes.io/name": "tombolo", "app.kubernetes.io/component": "mesh"}

// Run asks all nodes, in the order of their names. A node that cannot be asked says why, and keeps no other from being
// checked. An error is one of the API server's.
//
//	args: flags of 'tombolo link check'
//	done: called after each node with how many were asked, of how many; by one goroutine at a time
func Run(ctx context.Context, config *rest.Config, args []string, done func(n, of int)) ([]check.Node, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	var all corev1.PodList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, err
	}
	if err := c.List(ctx, &all, pods); err != nil {
		return nil, err
	}
	out := pair(nodes.Items, all.Items)
	x := &executor{config: config, command: append([]string{program, "link", "check", "-o", "json"}, args...)}
	var next atomic.Int64
	finished := make(chan struct{}, len(out))
	g := run.NewGroup(ctx)
	for range min(atOnce, len(out)) {
		g.Do(func(ctx context.Context) {
			for i := int(next.Add(1) - 1); i < len(out); i = int(next.Add(1) - 1) {
				if out[i].Why == "" {
					out[i].Node = x.ask(ctx, out[i])
				}
				finished <- struct{}{}
			}
		})
	}
	g.Do(func(ctx context.Context) {
		for n := range len(out) {
			select {
			case <-finished:
				done(n+1, len(out))
			case <-ctx.Done():
				return
			}
		}
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	answers := make([]check.Node, 0, len(out))
	for _, o := range out {
		answers = append(answers, o.Node)
	}
	return answers, ctx.Err()
}

// asked is a node, and the pod in which it is asked.
type asked struct {
	check.Node
	namespace, pod string
}

// pair finds the pod of each node.
func pair(nodes []corev1.Node, pods []corev1.Pod) (out []asked) {
	by := map[string]*corev1.Pod{}
	for i := range pods {
		p := &pods[i]
		if old := by[p.Spec.NodeName]; old == nil || old.CreationTimestamp.Before(&p.CreationTimestamp) {
			by[p.Spec.NodeName] = p
		}
	}
	for _, n := range nodes {
		a := asked{Node: check.Node{Node: n.Name, Findings: []check.Finding{}}}
		switch p := by[n.Name]; {
		case p == nil:
			a.Why, a.Next = "no pod of the mesh runs there", "at the node itself: tombolo link check"
		case p.Status.Phase != corev1.PodRunning:
			a.Why = fmt.Sprintf("the pod %s/%s of the mesh is %s", p.Namespace, p.Name, p.Status.Phase)
			a.Next = fmt.Sprintf("kubectl describe pod --namespace %s %s", p.Namespace, p.Name)
		default:
			a.namespace, a.pod = p.Namespace, p.Name
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b asked) int { return cmp.Compare(a.Node.Node, b.Node.Node) })
	return out
}

// executor runs a command in pods.
type executor struct {
	config  *rest.Config
	command []string
}

// ask asks one node.
func (x *executor) ask(parent context.Context, a asked) check.Node {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	out, bad := bounded{most: mostAnswer}, bounded{most: 4096}
	failed := x.exec(ctx, a, &out, &bad)
	var answer struct {
		Nodes []check.Node `json:"nodes"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err == nil && len(answer.Nodes) == 1 {
		return answer.Nodes[0] // the exit code says that there are problems, which it names
	}
	text := strings.TrimSpace(bad.String())
	if text == "" && failed != nil {
		text = failed.Error()
	}
	a.Why = untrusted.Text(text, 512)
	a.Next = fmt.Sprintf("kubectl logs --namespace %s %s", a.namespace, a.pod)
	return a.Node
}

// exec runs the command, by WebSocket or, where the API server cannot, by SPDY, as kubectl does.
func (x *executor) exec(ctx context.Context, a asked, out, bad *bounded) error {
	at, err := x.address(a)
	if err != nil {
		return err
	}
	socket, err := remotecommand.NewWebSocketExecutor(x.config, "GET", at.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(x.config, "POST", at)
	if err != nil {
		return err
	}
	both, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return both.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: bad})
}

// address is where the command is run.
func (x *executor) address(a asked) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(x.config)
	if err != nil {
		return nil, err
	}
	at := base.JoinPath("api/v1/namespaces", a.namespace, "pods", a.pod, "exec")
	at.RawQuery = url.Values{"container": {"mesh"}, "command": x.command, "stdout": {"true"}, "stderr": {"true"}}.Encode()
	return at, nil
}

// bounded keeps the first bytes of what is written, and drops the rest.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if _, err := b.Buffer.Write(p[:min(len(p), max(b.most-b.Len(), 0))]); err != nil {
		return 0, err
	}
	return len(p), nil
}
