// SPDX-License-Identifier: Apache-2.0

// Package seal turns what a member states about itself into bytes that only its
// cluster reads and only the member can have written, and back:
// docs/reference/discovery-wire.md. A discovery service uses Verify,
// VerifySuccession and VerifyProof, which need no secret; members use the rest.
//
// It draws no random numbers (they come from the caller's reader), keeps no
// versions and sends nothing. Values with a secret never show it when printed:
// only Encode reveals it.
package seal
