// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

// meshSocket is the variable that names the admin socket of a node.
const meshSocket = "TOMBOLO_MESH_SOCKET"

// meshFlags say which node of this machine is asked.
type meshFlags struct {
	socket string
	patient
}

func (f *meshFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.socket, "admin-socket", mesh.AdminSocket(discoveryclient.DefaultRunDir),
		"`PATH` of the node's admin socket (env "+meshSocket+")")
	cmd.PreRun = func(*cobra.Command, []string) {
		f.note(cmd)
		f.resolve(cmd)
	}
}

// resolve takes the socket from the environment where no flag names one.
func (f *meshFlags) resolve(cmd *cobra.Command) {
	if value := os.Getenv(meshSocket); value != "" && !cmd.Flags().Changed("admin-socket") {
		f.socket = value
	}
}

func (f *meshFlags) call(ctx context.Context, method, path string, out any) error {
	err := f.until(ctx, func() error { return at(*f).client().Call(ctx, method, path, nil, out) })
	if fault.Has(err, fault.CodeHubAway) {
		return fault.New(fault.CodeMeshAway, "no 'tombolo mesh' answers at "+f.socket).Because(fault.From(err).Unwrap()).
			Hint("start it, or name its socket with --admin-socket (only its user and root may ask)")
	}
	return err
}

// completePeer offers the peers of the node that runs here, and nothing where none does:
// a shell that waits for a word is no place for a fault.
func (f *meshFlags) completePeer(cmd *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const noFiles = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, noFiles
	}
	f.resolve(cmd)
	ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
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
