// SPDX-License-Identifier: Apache-2.0

package rawesp

// packetBytes is the longest packet that is read, with its headers; what is longer is cut.
const packetBytes = 512
