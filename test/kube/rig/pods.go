// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DeployWorkload makes the test pods and waits until they run, which needs no way from the control plane to
// the node:
//
//	writer   writes "line N" ten times a second
//	shell    reads its standard input and writes it back; has busybox
//	backend  serves HTTP on 8080 and HTTPS on 8443, behind the service "backend" (80 and 443)
func (c *Cluster) DeployWorkload(ctx context.Context) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	if _, err := c.Kubectl(ctx, "create", "secret", "generic", "backend-tls",
		"--from-file=tls.crt="+c.pki.crt("backend"), "--from-file=tls.key="+c.pki.pem("backend"),
		"--from-file=front-proxy-ca.crt="+c.pki.crt("ca")); err != nil {
		return err
	}
	// The default service account of a new cluster takes a moment; a pod that comes before it is refused.
	if err := await(ctx, "make the test pods", nil, func(ctx context.Context) error {
		return c.Apply(ctx, strings.NewReader(strings.NewReplacer("IMAGE", Image, "WHO", c.Name).Replace(workloadManifest)))
	}); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=80s"); err != nil {
		return err
	}
	c.rig.step(c.Name+": the test pods run", begin)
	return nil
}

// Resolve gives the cluster a DNS that knows a few names, each as NAME=ADDRESS, and waits until it runs. Pods that start
// later ask it, and search for names as pods do.
func (c *Cluster) Resolve(ctx context.Context, names ...string) error {
	begin := time.Now()
	text, err := json.Marshal(append([]string{"names"}, names...))
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, strings.NewReader(fmt.Sprintf(dnsManifest, dnsAddress, Image, text))); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "-n", "kube-system", "wait", "--for=condition=Ready", "pod/dns", "--timeout=60s"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.node.dir, "resolv.conf"), []byte("nameserver "+dnsAddress+
		"\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"), 0o644); err != nil {
		return err
	}
	c.rig.step(c.Name+": there is a DNS", begin)
	return nil
}

// Register makes kube-apiserver call the backend pod: as an admission webhook for what is labelled
// webhook=yes, and as the API server of the group rig.tombolo.test.
func (c *Cluster) Register(ctx context.Context) error {
	ca, err := os.ReadFile(c.pki.crt("ca"))
	if err != nil {
		return err
	}
	return c.Apply(ctx, strings.NewReader(fmt.Sprintf(registrations, base64.StdEncoding.EncodeToString(ca))))
}

const workloadManifest = `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "IMAGE", imagePullPolicy: Never, args: [lines]}
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "IMAGE", imagePullPolicy: Never, command: [cat], stdin: true}
---
apiVersion: v1
kind: Pod
metadata: {name: backend, labels: {app: backend}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "IMAGE"
    imagePullPolicy: Never
    args: [serve]
    env: [{name: CLUSTER, value: "WHO"}]
    readinessProbe: {tcpSocket: {port: 8443}, periodSeconds: 1}
    volumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
  volumes:
  - {name: tls, secret: {secretName: backend-tls}}
---
apiVersion: v1
kind: Service
metadata: {name: backend}
spec:
  selector: {app: backend}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: https, port: 443, targetPort: 8443}
`

// dnsAddress is within the range of Services.
const dnsAddress = "10.96.0.10"

const dnsManifest = `
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec:
  clusterIP: %s
  selector: {app: dns}
  ports:
  - {port: 53, protocol: UDP}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system, labels: {app: dns}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "%s", imagePullPolicy: Never, args: %s}
`

const registrations = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: rig}
webhooks:
- name: backend.rig.tombolo.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 10
  clientConfig:
    service: {namespace: default, name: backend, path: /mutate, port: 443}
    caBundle: %[1]s
  objectSelector: {matchLabels: {webhook: "yes"}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.rig.tombolo.test}
spec:
  group: rig.tombolo.test
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  caBundle: %[1]s
  service: {namespace: default, name: backend, port: 443}
`
