// SPDX-License-Identifier: Apache-2.0

package rawudp

// packetBytes is the longest packet that is read, with its headers: probes and STUN have less.
const packetBytes = 2048
