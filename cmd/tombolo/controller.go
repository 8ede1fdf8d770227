// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

// controllerProgram has Kubernetes' client library, which is too large for every node.
const controllerProgram = "tombolo-controller"

func newControllerCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "controller --config FILE",
		Short: "Run the controller, which keeps objects in Kubernetes",
		Long: `Run the controller. It judges objects of kind AccessPolicy and EdgeTenant when they are
written, and keeps other objects in Kubernetes as they say. Of several replicas one leads
and writes; all of them answer the API server.

It is a program of its own, tombolo-controller, which this command starts in its place: the
one beside tombolo, or the first in PATH.`,
		Example: `  tombolo config print --role controller > controller.yaml
  tombolo controller --config controller.yaml`,
		Args: onlyCommands,
		RunE: func(*cobra.Command, []string) error { return runController(file) },
	}
	cmd.Flags().StringVar(&file, "config", "",
		"configuration `FILE` (kind ControllerConfig; see 'tombolo config print --role controller')")
	cmd.AddCommand(newControllerManifestCommand())
	return cmd
}

// runController checks the configuration, and becomes the other program.
func runController(file string) error {
	if file == "" {
		return usage("--config is missing", "write one: tombolo config print --role controller > controller.yaml")
	}
	data, err := readConfig(file)
	if err != nil {
		return err
	}
	if _, err := controlconf.Parse(file, data); err != nil {
		return err
	}
	program, err := findController()
	if err != nil {
		return err
	}
	err = syscall.Exec(program, []string{controllerProgram, "--config", file}, os.Environ())
	return fault.Newf(fault.CodeNotFound, "%s cannot be started", program).Because(err).
		Hint("install the %s of this version", controllerProgram)
}

// findController looks beside this program, then in PATH.
func findController() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), controllerProgram)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(controllerProgram)
	if err != nil {
		return "", fault.Newf(fault.CodeNotFound, "the program %s is not installed", controllerProgram).Because(err).
			Hint("put %s beside tombolo, or into PATH: 'make build' makes both, and the image has both", controllerProgram)
	}
	return path, nil
}
