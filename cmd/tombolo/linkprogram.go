// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// kubeFlags say which API server is meant.
type kubeFlags struct{ file, context string }

func (f *kubeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "kubeconfig", "",
		"`FILE`; without it as kubectl: KUBECONFIG, ~/.kube/config, or the pod's")
	cmd.Flags().StringVar(&f.context, "context", "", "`NAME` of a context in it, in place of the current one")
}

// order has the program with Kubernetes' client library do something. What it tells meanwhile goes to stderr.
func (f *kubeFlags) order(cmd *cobra.Command, o invite.Order) (invite.Answer, error) {
	var out invite.Answer
	o.Kubeconfig, o.Context = f.file, f.context
	program, err := findController()
	if err != nil {
		return out, err
	}
	data, err := json.Marshal(o) // by stdin: others see the arguments of a process
	if err != nil {
		return out, err
	}
	var answer bytes.Buffer
	run := exec.CommandContext(cmd.Context(), program, "link")
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(data), &answer, cmd.ErrOrStderr()
	err = run.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out, fault.Newf(fault.CodeNotFound, "%s cannot be started", program).Because(err).
			Hint("install the %s of this version", controllerProgram)
	}
	if bad := json.Unmarshal(answer.Bytes(), &out); bad != nil {
		if err == nil {
			err = bad
		}
		return out, fault.Newf(fault.CodeInternal, "%s gave no answer", program).Because(err).
			Hint("use tombolo and %s of the same version", controllerProgram)
	}
	return out, out.Fault.Err()
}
