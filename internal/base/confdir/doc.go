// SPDX-License-Identifier: Apache-2.0

// Package confdir reads files and folders of YAML files, watches them and hands over what changed.
// A file with mistakes keeps its last good content. It does not know what a file means: its users,
// such as policyfile, do.
package confdir
