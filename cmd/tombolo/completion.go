// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeWords keeps shells from offering file names where no file is meant.
func completeWords(c *cobra.Command) {
	if c.ValidArgsFunction == nil && c.Annotations[takesFile] == "" {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, set := c.GetFlagCompletionFunc(f.Name); set || f.NoOptDefVal != "" {
			return
		}
		switch f.Name {
		case "log-level":
			offer(c, f.Name, "debug", "info", "warn", "error")
			return
		case "log-format":
			offer(c, f.Name, "text", "json")
			return
		}
		if name, _ := pflag.UnquoteUsage(f); name == "FILE" || name == "DIR" || name == "PATH" {
			return // the shell's own completion
		}
		offer(c, f.Name)
	})
	for _, sub := range c.Commands() {
		completeWords(sub)
	}
}

// takesFile is the annotation of a command whose argument is a file.
const takesFile = "takes-file"

func offer(c *cobra.Command, flag string, words ...string) {
	// The only error is a flag that does not exist or is complete already: TestCompletion.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
