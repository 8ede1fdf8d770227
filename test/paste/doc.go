// SPDX-License-Identifier: Apache-2.0

// Package paste runs the blocks of README.md and docs/howto as a reader does, who
// pastes each as it stands, in order, into terminals of fresh machines. A comment right
// above a block says where, or why not:
//
//	<!-- run: hub -->                    in the first terminal of the machine hub
//	<!-- run: node-1 node-2, terminal 2 -->  in the second terminal of both
//	<!-- run: hub, goes on -->           the last command does not end by itself; those before it must work
//	<!-- run: node-1, after Ctrl-C -->   where the command that goes on there is ended first
//	<!-- run: node-1, with PIN LINE -->  words that the reader replaces; words says by what
//	<!-- not run: REASON -->
//
// Every block of sh needs one of these. Comments that stand alone are what the page takes
// for granted, or says in its text:
//
//	<!-- given on hub: COMMAND -->
//	<!-- copied from node-1 to node-2: FILE -->
//
// A block of yaml with a kind is checked by 'tombolo config validate', and is written to the
// machine where the page says so: <!-- file on hub: PATH -->. Blocks without a language show
// output, and are not run; what else is not, of yaml or Go, has a comment with the reason.
//
// The machines are hub (192.0.2.10, hub.example.com), node-1 (192.0.2.11) and node-2
// (192.0.2.12) in one network: fresh ones for each page, with nothing but the program.
package paste
