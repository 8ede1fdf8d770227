// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

// completePeer offers the peers of the node that runs here, and nothing where none does:
// a shell that waits for a word is no place for a fault.
func (f *meshFlags) completePeer(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const noFiles = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, noFiles
	}
	f.resolve(cmd)
	ctx, cancel := context.WithTimeout(cmd.Context(), limit.Completion)
	defer cancel()
	var st mesh.Status
	if err := f.call(ctx, http.MethodGet, "/v1/status", &st); err != nil {
		return nil, noFiles
	}
	return peerWords(st.Peers), noFiles
}

// plainWord reports whether no shell reads anything into a word. A member says itself how
// it is called.
func plainWord(word string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return word != "" && word[0] != '-' && strings.Trim(word, plain) == ""
}

// peerWords are the words for peers: the name of the node, or its member id where the name
// is no plain word.
func peerWords(peers []mesh.Peer) []cobra.Completion {
	var out []cobra.Completion
	for _, p := range peers {
		word := p.Node
		if !plainWord(word) {
			word = p.ID
		}
		if plainWord(word) {
			out = append(out, cobra.CompletionWithDesc(word, p.State))
		}
	}
	return out
}
