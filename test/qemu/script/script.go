// SPDX-License-Identifier: Apache-2.0

package script

// Places in the guest.
const (
	File    = "/script.json" // the list of steps
	Modules = "/modules"     // folder of the files that steps load
	Tests   = "/tests"       // folder of the test programs
	Spare   = "/spare.json"  // the modules that the kernel may ask for: Asked
	Helper  = "/sbin/modprobe"
)

// Asked are files below Modules, in order, by the names and aliases by which the kernel asks for
// a module. It does so by running Helper.
type Asked map[string][]string

// Step is one thing that the guest does: it loads modules, then runs a program, if one is named.
// A step that fails to load ends the guest; a program that fails does not.
type Step struct {
	Load []string `json:"load,omitempty"` // files below Modules, each after those that it needs
	Run  []string `json:"run,omitempty"`  // a program with its arguments
	Env  []string `json:"env,omitempty"`  // of the program, as NAME=VALUE
}
