// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestPair(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase, age time.Duration) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system",
			CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	}
	node := func(name string) corev1.Node { return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	got := pair([]corev1.Node{node("c"), node("b"), node("a")}, []corev1.Pod{
		pod("old", "a", corev1.PodFailed, time.Hour), pod("new", "a", corev1.PodRunning, time.Second),
		pod("p", "b", corev1.PodPending, 0), pod("q", "gone", corev1.PodRunning, 0)})
	want := []string{"a: kube-system/new", "b: the pod kube-system/p of the mesh is Pending", "c: no pod of the mesh runs there"}
	for i, a := range got {
		text := a.Why
		if a.pod != "" {
			text = a.namespace + "/" + a.pod
		}
		if text = fmt.Sprintf("%s: %s", a.Node.Node, text); len(got) != len(want) || text != want[i] {
			t.Errorf("%d: %q, want %q", i, text, want)
		}
		if (a.Why == "") != (a.Next == "") {
			t.Errorf("%q: next: %q", text, a.Next)
		}
	}
}

func TestBounded(t *testing.T) {
	b := bounded{most: 5}
	for range 3 {
		if n, err := b.Write([]byte("abc")); n != 3 || err != nil {
			t.Error(n, err)
		}
	}
	if b.String() != "abcab" {
		t.Error(b.String())
	}
}

func TestAddress(t *testing.T) {
	x := executor{config: &rest.Config{Host: "https://192.0.2.1:6443/behind"}, command: []string{program, "link"}}
	at, err := x.address(asked{namespace: "n", pod: "p"})
	if err != nil || !strings.HasPrefix(at.String(), "https://192.0.2.1:6443/behind/api/v1/namespaces/n/pods/p/exec?") ||
		len(at.Query()["command"]) != 2 || at.Query().Get("container") != "mesh" {
		t.Error(at, err)
	}
}
